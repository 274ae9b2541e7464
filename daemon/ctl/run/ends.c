// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/out.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/run/exec.h"

const char *pstctl_cause_name(enum pstctl_cause cause)
{
    static const char *const names[] = {
#define ROW(id, name) (name),
        PSTCTL_CAUSE_LIST(ROW)
#undef ROW
    };

    return names[cause];
}

/* Returns the first rank that a text names, such as 1 for "... : rank 1 is
 * stuck in step"; -1: none. */
static int find_blamed_rank(const char *text)
{
    const char *at = strstr(text, "rank ");

    while (at != NULL && (at[5] < '0' || at[5] > '9'))
        at = strstr(at + 5, "rank ");
    return at != NULL ? (int)strtol(at + 5, NULL, 10) : -1;
}

static void set_cause(const struct pstctl_launch *l, bool oom,
                      struct pstctl_end *e)
{
    const bool hangs =
        pst_has_prefix(pst_str_text(&l->cause), PST_WATCHDOG_TEXT);

    e->rank = -1;
    e->exit_code = WIFEXITED(l->status) ? WEXITSTATUS(l->status) : -1;
    if (hangs) {
        e->cause = PSTCTL_CAUSE_WATCHDOG;
        e->rank = find_blamed_rank(l->cause.text);
    } else if (pst_has_prefix(pst_str_text(&l->cause), PST_COPIES_TEXT)) {
        e->cause = PSTCTL_CAUSE_CORRUPTION;
        e->rank = find_blamed_rank(l->cause.text);
    } else if (l->killed_rank >= 0) {
        e->cause = PSTCTL_CAUSE_SIGNAL;
        e->rank = l->killed_rank;
        e->signal = l->killed_signal;
        e->exit_code = -1;
    } else if (WIFSIGNALED(l->status)) {
        e->cause = l->is_mpirun ? PSTCTL_CAUSE_LAUNCHER : PSTCTL_CAUSE_SIGNAL;
        e->signal = WTERMSIG(l->status);
    } else {
        e->cause = PSTCTL_CAUSE_EXIT;
        if (l->exited_rank >= 0)
            e->exit_code = l->exited_code;
        /* A rank that lost another one is not at fault. */
        if (e->exit_code != pst_status_exit_code(PST_ERR_PEER))
            e->rank = l->exited_rank;
    }
    if (e->cause == PSTCTL_CAUSE_SIGNAL && e->signal == SIGKILL && oom)
        e->cause = PSTCTL_CAUSE_OOM;
}

#define OOM_TEXT "likely out of memory"

void pstctl_end_explain(const struct pstctl_launch *launch, bool oom,
                        struct pst_diag *diag)
{
    struct pstctl_end end = {0};

    set_cause(launch, oom, &end);
    if (end.cause == PSTCTL_CAUSE_OOM)
        pst_diag_prefix(diag, OOM_TEXT);
}

void pstctl_end_describe(const struct pstctl_launch *launch,
                         const char *placement, bool oom,
                         const struct pst_diag *why, struct pstctl_end *ret)
{
    struct pst_str stages = {0};

    set_cause(launch, oom, ret);
    if (placement != NULL && ret->rank >= 0)
        pstd_print_stages(placement, (unsigned)ret->rank, &stages);
    (void)snprintf(ret->stages, sizeof(ret->stages), "%s",
                   pst_str_text(&stages));
    pst_str_fini(&stages);
    ret->error = why->error;
    (void)snprintf(ret->text, sizeof(ret->text), "%s%.*s",
                   ret->cause == PSTCTL_CAUSE_OOM ? OOM_TEXT ": " : "",
                   PST_DIAG_TEXT - 64, why->text);
}

/* True for signals that a fault of the program itself causes. */
static bool is_own_fault(int number)
{
    return number == SIGSEGV || number == SIGABRT || number == SIGFPE ||
           number == SIGILL || number == SIGTRAP || number == SIGSYS;
}

bool pstctl_end_is_loss(const struct pstctl_end *e)
{
    switch (e->cause) {
    case PSTCTL_CAUSE_OOM:
    case PSTCTL_CAUSE_HOSTS:
        return true;
    case PSTCTL_CAUSE_SIGNAL:
        return !is_own_fault(e->signal);
    case PSTCTL_CAUSE_WATCHDOG: /* a rank with a broken link appears to hang */
        return e->rank >= 0;
    case PSTCTL_CAUSE_EXIT: /* if no rank is known, mpirun has lost a host */
        return e->rank < 0;
    case PSTCTL_CAUSE_DONE:
    case PSTCTL_CAUSE_STOPPED:
    case PSTCTL_CAUSE_FAULT:
    case PSTCTL_CAUSE_REFUSED:
    case PSTCTL_CAUSE_LAUNCHER:
    case PSTCTL_CAUSE_CORRUPTION: /* no rank was lost: all are alive */
        break;
    }
    return false;
}

enum pst_status pstctl_record_open(struct pstctl_record *r,
                                   const struct pstd_config *config,
                                   const char *job, const char *beside,
                                   struct pst_diag *diag)
{
    const char *dir =
        config->log_dir != NULL ? config->log_dir : config->checkpoint;
    enum pst_status status;

    *r =
        (struct pstctl_record){.job = job, .beside = beside, .log = {.fd = -1}};
    if (dir == NULL)
        return PST_OK;
    r->dir = pst_strdup(PST_TAG_DAEMON, dir);
    if (r->dir == NULL)
        return pst_diag_nomem(diag, strlen(dir));
    r->has_log = config->log_dir != NULL;
    status = pst_mkdirs(dir, 0750, diag);
    if (status == PST_OK && config->log_dir != NULL)
        status = pstd_logfile_open(&r->log, dir, "supervisor", diag);
    return status;
}

/* Reopens the log if the file was renamed or the folder removed. Called before
 * each event, since this process uses SIGHUP for something else. If no new file
 * can be created, continues with the old one. */
static void reopen_log(struct pstctl_record *r)
{
    struct pst_diag ignored;

    if (!r->has_log || pst_mkdirs(r->dir, 0750, &ignored) != PST_OK ||
        pstd_logfile_reopen(&r->log, &ignored) != PST_OK)
        errno = 0;
}

static void log_note(struct pstctl_record *r, const struct pstd_note *note)
{
    const struct pstd_log_head head = {.time_us = pstd_now_us(),
                                       .is_supervisor = true,
                                       .stage = "-",
                                       .job = r->job,
                                       .seq = ++r->seq};
    struct pst_str line = {0};

    reopen_log(r);
    pstd_log_format(&head, note, &line);
    if (!line.failed)
        pstd_logfile_write(&r->log, line.text, line.len);
    pst_str_fini(&line);
}

static void log_fewer(struct pstctl_record *r, const struct pstctl_end *e)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_FEWER_RANKS);
    pstd_note_int(&note, "ranks", e->next_ranks);
    pstd_note_int(&note, "before", e->ranks);
    pstd_note_int(&note, "of_rank", e->rank);
    pstd_note_text(&note, "cause", pstctl_cause_name(e->cause));
    log_note(r, &note);
}

static void log_end(struct pstctl_record *r, const struct pstctl_end *e)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_JOB_ENDED);
    pstd_note_text(&note, "cause", pstctl_cause_name(e->cause));
    pstd_note_int(&note, "of_rank", e->rank);
    pstd_note_text(&note, "stages", e->stages);
    pstd_note_int(&note, "signal", e->signal);
    pstd_note_int(&note, "exit_code", e->exit_code);
    pstd_note_int(&note, "step", (int64_t)e->step);
    pstd_note_int(&note, "checkpoint_step", (int64_t)e->checkpoint);
    pstd_note_int(&note, "restarts", (int64_t)e->restarts);
    pstd_note_int(&note, "ranks", e->ranks);
    if (e->error != PST_E_NONE)
        pstd_note_text(&note, "id", pst_error_id(e->error));
    pstd_note_text(&note, "text", e->text);
    log_note(r, &note);
    if (!e->again)
        return;
    if (e->next_ranks < e->ranks)
        log_fewer(r, e);
    pstd_note_init(&note, PSTD_EVENT_JOB_RESTART);
    pstd_note_int(&note, "restarts", (int64_t)e->restarts + 1);
    pstd_note_int(&note, "checkpoint_step", (int64_t)e->checkpoint);
    pstd_note_int(&note, "delay_s", e->delay_s);
    pstd_note_int(&note, "ranks", e->next_ranks);
    pstd_note_int(&note, "paused", e->paused);
    pstd_note_text(&note, "undone", e->undone);
    pstd_note_int(&note, "replaced", e->replaced);
    log_note(r, &note);
}

static json_t *to_json(const struct pstctl_record *r,
                       const struct pstctl_end *e)
{
    return json_pack(
        "{s:i, s:s, s:I, s:s, s:i, s:s, s:i, s:i, s:o, s:s, s:I, s:I, s:I, "
        "s:b, s:I, s:i, s:i, s:b, s:o, s:b}",
        "version", 1, "job", r->job, "time_us", (json_int_t)pstd_now_us(),
        "cause", pstctl_cause_name(e->cause), "rank", e->rank, "stages",
        e->stages, "signal", e->signal, "exit_code", e->exit_code, "text",
        pstctl_json_text(e->text), "error_id", pst_error_id(e->error), "step",
        (json_int_t)e->step, "checkpoint_step", (json_int_t)e->checkpoint,
        "restarts", (json_int_t)e->restarts, "restarted", (int)e->again,
        "delay_s", (json_int_t)e->delay_s, "ranks", (int)e->ranks, "next_ranks",
        (int)e->next_ranks, "paused", (int)e->paused, "undone",
        pstctl_json_text(e->undone), "replaced", (int)e->replaced);
}

/* Writes last_exit.json. text NULL: there was no memory for it. */
static void write_record(const struct pstctl_record *r, const char *text)
{
    struct pst_str path = {0};
    struct pst_diag diag;
    enum pst_status status;

    pst_str_addf(&path, "%s/last_exit.json", r->dir);
    status = text == NULL || path.failed
                 ? pst_diag_nomem(&diag, path.len)
                 : pst_file_replace(path.text, text, strlen(text), &diag);
    if (status != PST_OK)
        pstctl_printf(stderr, "penstock: %s%s\n", diag.text,
                      pst_error_tag(diag.error));
    pst_str_fini(&path);
}

void pstctl_record_end(struct pstctl_record *r, const struct pstctl_end *e)
{
    struct pst_diag diag;
    json_t *json;
    char *text;

    /* The folder of checkpoints belongs to another, running job: only the end
     * of that job is recorded there. */
    if (!r->has_log && e->error == PST_E_CHECKPOINT_IN_USE)
        return;
    json = to_json(r, e);
    text = json != NULL ? json_dumps(json, JSON_INDENT(1)) : NULL;
    /* The file beside the socket is not written if its folder is missing or
     * belongs to another job now. */
    if (text != NULL && e->again && r->beside != NULL &&
        (r->owner == NULL || pstctl_is_owner(r->owner)) &&
        pst_file_replace(r->beside, text, strlen(text), &diag) != PST_OK)
        errno = 0;
    if (r->dir != NULL) {
        log_end(r, e);
        write_record(r, text);
    }
    json_decref(json);
    free(text); /* allocated by jansson: free(), not pst_free() */
}

void pstctl_record_close(struct pstctl_record *r)
{
    pstd_logfile_close(&r->log);
    pst_free(r->dir);
    r->dir = NULL;
}

void pstctl_record_remove(const char *dir)
{
    struct pst_str path = {0};

    if (dir == NULL)
        return;
    pst_str_addf(&path, "%s/last_exit.json", dir);
    if (!path.failed)
        (void)unlink(path.text);
    pst_str_fini(&path);
}
