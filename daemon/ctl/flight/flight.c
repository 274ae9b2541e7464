// SPDX-License-Identifier: Apache-2.0
/* `penstock flight`: shows the last actions of each rank, even after a crash.
 */
#include "daemon/ctl/ctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/flight/blame.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "stages/base/alloc.h"

#define MAX_RANKS 4096
#define SHOWN     8 /* newest records shown per rank; --json shows all */

struct logs {
    struct pst_flight_log *at; /* log of each rank */
    unsigned ranks;
};

static void logs_fini(struct logs *logs)
{
    for (unsigned i = 0; logs->at != NULL && i < logs->ranks; i++)
        pst_free(logs->at[i].at);
    pst_free(logs->at);
}

/* Stores the log of one rank. The first log that is stored, which is that of
 * rank 0 if it exists, determines the number of ranks. Logs of higher ranks are
 * dropped: they are left from an earlier start with more ranks. */
static enum pst_status add_log(struct logs *logs, struct pst_flight_log *log,
                               const char *path, struct pst_diag *diag)
{
    if (logs->at != NULL && logs->at[0].at != NULL &&
        log->rank >= logs->ranks) {
        pst_free(log->at);
        return PST_OK;
    }
    if (logs->at == NULL && log->ranks <= MAX_RANKS) {
        logs->at = pst_calloc(PST_TAG_DAEMON, log->ranks, sizeof(*logs->at));
        if (logs->at == NULL)
            return pst_diag_nomem(diag, log->ranks * sizeof(*logs->at));
        logs->ranks = log->ranks;
    }
    if (log->ranks != logs->ranks || logs->at[log->rank].at != NULL)
        return pst_diag_set(
            diag, PST_E_RECORD_DAMAGED,
            "%s belongs to another job than the files beside it: "
            "remove the older ones",
            path);
    logs->at[log->rank] = *log;
    return PST_OK;
}

static enum pst_status read_log(const char *dir, const char *name,
                                struct logs *logs, struct pst_diag *diag)
{
    struct pst_flight_log log = {0};
    struct pst_str path = {0};
    enum pst_status status;

    pst_str_addf(&path, "%s/%s", dir, name);
    status = path.failed ? pst_diag_nomem(diag, path.len)
                         : pst_flight_read(path.text, &log, diag);
    if (status == PST_OK)
        status = add_log(logs, &log, path.text, diag);
    if (status != PST_OK)
        pst_free(log.at);
    pst_str_fini(&path);
    return status;
}

static enum pst_status read_logs(const char *dir, bool before,
                                 struct logs *logs, struct pst_diag *diag)
{
    const char *suffix =
        before ? PST_FLIGHT_SUFFIX ".before" : PST_FLIGHT_SUFFIX;
    DIR *d = opendir(dir);
    const struct dirent *e;
    char first[64];
    enum pst_status status = PST_OK;

    if (d == NULL)
        return pst_diag_errno(diag, errno, "cannot read %s", dir);
    (void)snprintf(first, sizeof(first), "rank-0%s", suffix);
    if (faccessat(dirfd(d), first, F_OK, 0) == 0)
        status = read_log(dir, first, logs, diag);
    while (status == PST_OK && (e = readdir(d)) != NULL)
        if (pst_has_prefix(e->d_name, "rank-") &&
            pst_has_suffix(e->d_name, suffix) && strcmp(e->d_name, first) != 0)
            status = read_log(dir, e->d_name, logs, diag);
    (void)closedir(d);
    if (status == PST_OK && logs->at == NULL)
        status = pst_diag_set(diag, PST_E_RECORD_NONE,
                              "no flight records in %s: give the folder of "
                              "--log-dir",
                              dir);
    return status;
}

/* Returns the newest time in any record; ages such as "3 s ago" are relative to
 * it. */
static double newest_time(const struct logs *logs)
{
    double found = 0;

    for (unsigned i = 0; i < logs->ranks; i++) {
        const struct pst_flight_record *r = pstctl_newest_record(&logs->at[i]);

        if (r != NULL)
            found = PST_MAX(found, PST_MAX(r->begin, r->end));
    }
    return found;
}

static void add_record(const struct pst_flight_record *r, double now,
                       struct pst_str *out)
{
    pstctl_print_record(r, out);
    if (r->end > 0) {
        pst_str_add(out, ", done in ");
        pstctl_duration(r->end - r->begin, out);
        return;
    }
    pst_str_addf(out, r->peer < 0 ? ", begun " : ", waits for rank %d since ",
                 (int)r->peer);
    pstctl_duration(PST_MAX(0, now - r->begin), out);
    pst_str_add(out, " before the newest record");
}

static void print_logs(const struct logs *logs)
{
    const double now = newest_time(logs);

    for (unsigned i = 0; i < logs->ranks; i++) {
        const struct pst_flight_log *log = &logs->at[i];
        struct pst_str text = {.visible = 1};

        pst_str_addf(&text, "rank %u", i);
        if (log->n == 0)
            pst_str_add(&text, ": no record");
        else
            pst_str_addf(&text, " (process %lld, %s)", (long long)log->pid,
                         kill((pid_t)log->pid, 0) == 0 || errno == EPERM
                             ? "there"
                             : "gone, or on another host");
        pst_str_add(&text, "\n");
        for (size_t k = log->n > SHOWN ? log->n - SHOWN : 0; k < log->n; k++) {
            pst_str_addf(&text, "  %8llu  ",
                         (unsigned long long)log->at[k].seq);
            add_record(&log->at[k], now, &text);
            pst_str_add(&text, "\n");
        }
        pstctl_print(stdout, &text);
        pst_str_fini(&text);
    }
}

static json_t *record_json(const struct pst_flight_record *r)
{
    struct pst_str text = {0};
    json_t *ret;

    pstctl_print_record(r, &text);
    ret = json_pack("{s:I, s:I, s:s, s:i, s:i, s:o, s:o, s:i, s:b}", "seq",
                    (json_int_t)r->seq, "step", (json_int_t)r->step + 1, "what",
                    pst_str_text(&text), "stage", (int)r->stage, "microbatch",
                    (int)r->microbatch, "begin", pstctl_json_real(r->begin),
                    "end", r->end > 0 ? pstctl_json_real(r->end) : json_null(),
                    "peer", (int)r->peer, "sends", (int)r->sends);
    pst_str_fini(&text);
    return ret;
}

static json_t *to_json(const struct logs *logs,
                       const struct pstctl_blamed *blamed, const char *text)
{
    json_t *ranks = json_array();

    for (unsigned i = 0; i < logs->ranks; i++) {
        const struct pst_flight_log *log = &logs->at[i];
        json_t *records = json_array();

        for (size_t k = 0; k < log->n; k++)
            (void)json_array_append_new(records, record_json(&log->at[k]));
        (void)json_array_append_new(
            ranks, json_pack("{s:i, s:I, s:o}", "rank", (int)i, "pid",
                             (json_int_t)log->pid, "records", records));
    }
    return json_pack("{s:{s:i, s:i, s:b, s:s}, s:o}", "verdict", "rank",
                     blamed->rank, "waiter", blamed->waiter, "cycle",
                     (int)blamed->cycle, "text", text, "ranks", ranks);
}

static enum pst_status run_flight(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct logs logs = {0};
    struct pst_str text = {0};
    struct pstctl_blamed blamed;
    enum pst_status status =
        read_logs(config->args[0], config->before, &logs, diag);

    if (status == PST_OK) {
        blamed = pstctl_find_blamed(logs.at, logs.ranks);
        pstctl_print_blamed(&blamed, logs.at, &text);
        if (config->json) {
            status = pstctl_json_print(
                to_json(&logs, &blamed, pst_str_text(&text)), diag);
        } else {
            print_logs(&logs);
            pstctl_printf(stdout, "%s\n", pst_str_text(&text));
        }
    }
    pst_str_fini(&text);
    logs_fini(&logs);
    return status;
}

const struct pstctl_command pstctl_flight = {
    "flight",
    "DIR",
    1,
    1,
    PSTD_OPT_FLIGHT | PSTD_OPT_JSON,
    "show what each rank did last, and which one the others wait for",
    "DIR is the --log-dir folder, also of a job that was killed. Each rank "
    "keeps its\n"
    "newest 4096 actions; the newest of them are shown, all with --json.",
    run_flight,
    true};
