// SPDX-License-Identifier: Apache-2.0
/* Finds the reason for a job's end in its output, and reports it. */
#include "daemon/ctl/run/launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "daemon/common/setup.h"
#include "daemon/exec/crash.h"
#include "stages/run/exec.h"

#define MAX_TAIL  ((size_t)4096)
#define MAX_CAUSE ((size_t)1024)

/* Parses "mpirun noticed that process rank 1 with PID 0 on node x exited on
 * signal 9 (Killed)." */
static void parse_kill(struct pstctl_launch *launch, const char *line)
{
    const char *rank = strstr(line, "process rank ");
    const char *number = strstr(line, "exited on signal ");

    if (rank == NULL || number == NULL || launch->killed_rank >= 0)
        return;
    launch->killed_rank = (int)strtol(rank + 13, NULL, 10);
    launch->killed_signal = (int)strtol(number + 17, NULL, 10);
}

/* Parses "  Process name: [[12345,1],1]" and "  Exit code:    3"; only the
 * first line of each kind counts. */
static void parse_exit(struct pstctl_launch *launch, const char *line)
{
    const char *name = strstr(line, "Process name: [["),
               *rank = name != NULL ? strstr(name, "],") : NULL,
               *code = strstr(line, "Exit code: ");

    if (rank != NULL && launch->exited_rank < 0)
        launch->exited_rank = (int)strtol(rank + 2, NULL, 10);
    if (code != NULL && launch->exited_code == 0)
        launch->exited_code = (int)strtol(code + 11, NULL, 10);
}

/* Keeps the first cause that a rank reports, since later ones follow from it.
 * Collects all causes that the watchdog reports: a rank may wait for a rank
 * that waits itself, so only all reports together show which rank does not
 * answer. */
static void record_cause(struct pstctl_launch *launch, const char *text)
{
    struct pst_str *cause = &launch->cause;
    const char *who = strstr(text, ": ");
    size_t n = 0;
    const enum pst_error error = pst_error_of_line(text, &n);

    if (cause->len == 0) {
        launch->cause_error = error;
        pst_str_addn(cause, text, n);
    } else if (pst_has_prefix(cause->text, PST_WATCHDOG_TEXT) &&
               pst_has_prefix(text, PST_WATCHDOG_TEXT) &&
               cause->len < MAX_CAUSE) {
        who = who != NULL && who + 2 <= text + n ? who + 2 : text;
        pst_str_addf(cause, "; %.*s", (int)(text + n - who), who);
    }
}

void pstctl_launch_line(struct pstctl_launch *launch, const char *line)
{
    const char *ours = strstr(line, "penstockd: ");

    if (ours != NULL && pst_has_prefix(ours + 11, PSTD_CRASH_TEXT)) {
        if (launch->crashes.len < MAX_CAUSE)
            pst_str_addf(&launch->crashes, "\n%s",
                         ours + 11 + strlen(PSTD_CRASH_TEXT));
        return;
    }
    if (ours != NULL && pst_has_prefix(ours + 11, PSTD_ASKED_TEXT)) {
        launch->asked = true;
        return;
    }
    if (ours != NULL) {
        record_cause(launch, ours + 11);
        return;
    }
    parse_kill(launch, line);
    parse_exit(launch, line);
    pst_str_addf(&launch->tail, "%s\n", line);
    if (launch->tail.len > 2 * MAX_TAIL) {
        memmove(launch->tail.text,
                launch->tail.text + launch->tail.len - MAX_TAIL, MAX_TAIL + 1);
        launch->tail.len = MAX_TAIL;
    }
}

/* Finds the crash report of a rank, " in step 12, ..."; "" if there is none. */
static void find_crash(const struct pstctl_launch *launch, int rank,
                       struct pst_str *out)
{
    struct pst_str key = {0};
    const char *at;

    pst_str_addf(&key, "\n%d in ", rank);
    at = strstr(pst_str_text(&launch->crashes), pst_str_text(&key));
    if (at != NULL && !key.failed) {
        at += strcspn(at, " ");
        pst_str_addn(out, at, strcspn(at, "\n"));
    }
    pst_str_fini(&key);
}

static enum pst_status report_killed_rank(const struct pstctl_launch *launch,
                                          const char *placement,
                                          struct pst_diag *diag)
{
    const int rank = launch->killed_rank, number = launch->killed_signal;
    struct pst_str stages = {0}, crash = {0};
    enum pst_status status;

    find_crash(launch, rank, &crash);
    if (placement != NULL && rank >= 0)
        pstd_print_stages(placement, (unsigned)rank, &stages);
    status = pst_diag_set(
        diag, PST_E_RUN_KILLED, "rank %d%s%s%s was killed by signal %d (%s)%s",
        rank, stages.len > 0 ? " (stages " : "", pst_str_text(&stages),
        stages.len > 0 ? ")" : "", number,
        strsignal(number), // NOLINT(concurrency-mt-unsafe)
        pst_str_text(&crash));
    pst_str_fini(&crash);
    pst_str_fini(&stages);
    return status;
}

/* Reports that the child was killed: mpirun, or the one process of all ranks.
 */
static enum pst_status report_killed_job(const struct pstctl_launch *launch,
                                         struct pst_diag *diag)
{
    const int number = WTERMSIG(launch->status);
    struct pst_str crash = {0};
    enum pst_status status;

    find_crash(launch, 0, &crash);
    status = pst_diag_set(diag, PST_E_RUN_KILLED,
                          "the job was killed by signal %d (%s)%s", number,
                          strsignal(number), // NOLINT(concurrency-mt-unsafe)
                          launch->is_mpirun ? "" : pst_str_text(&crash));
    pst_str_fini(&crash);
    return status;
}

/* Returns a status for an exit code of a rank. Several statuses have the same
 * exit code; the text of the error is more precise. */
static enum pst_status status_of_exit_code(int code)
{
    switch (code) {
    case 64:
        return PST_ERR_USAGE;
    case 65:
        return PST_ERR_INPUT;
    case 69:
        return PST_ERR_NO_DAEMON;
    case 74:
        return PST_ERR_IO;
    case 75:
        return PST_ERR_BUSY;
    case 77:
        return PST_ERR_DENIED;
    case 78:
        return PST_ERR_CONFIG;
    default:
        return PST_ERR_PEER;
    }
}

/* Returns the status of the error that the ranks have reported, if it has this
 * exit code. That is more precise than the exit code, which several statuses
 * share: it decides whether a restart may succeed, since a missing file may
 * appear later. */
static enum pst_status status_of_cause(const struct pstctl_launch *launch,
                                       int code)
{
    const enum pst_status status = pst_error_status(launch->cause_error);
    const enum pst_status by_code = status_of_exit_code(code);

    return launch->cause_error != PST_E_NONE && by_code != PST_ERR_PEER &&
                   pst_status_exit_code(status) == code
               ? status
               : by_code;
}

enum pst_status pstctl_launch_outcome(const struct pstctl_launch *launch,
                                      const char *placement,
                                      struct pst_diag *diag)
{
    const int code =
        WIFEXITED(launch->status) ? WEXITSTATUS(launch->status) : -1;

    if (launch->stuck > 0)
        return pst_diag_set(diag, PST_E_RUN_STUCK,
                            "process %d was killed and does not end: it waits "
                            "for a file system or a device that does not "
                            "answer, and has the name and the folders of the "
                            "job until then",
                            (int)launch->stuck);
    if (launch->killed_rank >= 0)
        return report_killed_rank(launch, placement, diag);
    if (launch->cause.len > 0)
        return pst_diag_carry(diag, launch->cause_error,
                              status_of_cause(launch, code), "%s",
                              launch->cause.text);
    if (WIFSIGNALED(launch->status))
        return report_killed_job(launch, diag);
    if (code == 0)
        return PST_OK;
    return pst_diag_carry(diag, PST_E_RUN_EXIT, status_of_exit_code(code),
                          "the ranks ended with exit code %d: %s", code,
                          pst_str_text(&launch->tail));
}
