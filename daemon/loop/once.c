// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/once.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "daemon/common/control/socket.h"
#include "daemon/common/past.h"
#include "daemon/loop/commands.h"
#include "daemon/loop/stay.h"
#include "stages/base/host/fs.h"

#define MAX_OUTPUT  ((off_t)4 << 20)
#define KEPT_OUTPUT ((off_t)1 << 20)
/* An interrupted run (--stay) that fails to start again for a temporary reason
 * is retried up to MAX_DELAYS times, after 1, 2, 4, ... seconds, at most
 * MAX_DELAY_S. */
#define MAX_DELAYS  8
#define MAX_DELAY_S 32u

static bool owns_only_run(const struct pstd_daemon *d)
{
    return d->config->run_id != NULL && d->rank == 0 && !d->config->stay;
}

static void emit_run(struct pstd_daemon *d, uint64_t step, unsigned tries,
                     enum pst_status status, const struct pst_diag *why)
{
    struct pstd_note note;

    if (status == PST_OK) {
        pstd_note_init(&note, PSTD_EVENT_RUN_AGAIN);
        pstd_note_int(&note, "step", (int64_t)step);
        pstd_note_int(&note, "tries", tries);
    } else {
        pstd_note_init(&note, PSTD_EVENT_RUN_GIVEN_UP);
        pstd_note_int(&note, "step", (int64_t)step);
        pstd_note_error(&note, why);
        pstd_daemon_keep_error(d, &note);
    }
    pstd_daemon_publish(d, &note);
}

static bool is_temporary(const struct pstd_daemon *d, enum pst_status status,
                         const struct pst_diag *why)
{
    return d->delayed < MAX_DELAYS && pstd_past_may_retry(status, why->error);
}

static void delay_run(struct pstd_daemon *d, uint64_t step,
                      const struct pst_diag *why)
{
    struct pst_diag said;
    struct pstd_note note;

    d->wait_s = PST_MIN(1u << d->delayed, MAX_DELAY_S);
    d->delayed++;
    (void)pst_diag_pass(&said, why,
                        "%s; the interrupted run is tried again in %u s",
                        why->text, d->wait_s);
    pstd_note_init(&note, PSTD_EVENT_RUN_DELAYED);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_int(&note, "tries", d->delayed);
    pstd_note_int(&note, "delay_s", d->wait_s);
    pstd_note_error(&note, &said);
    pstd_daemon_publish(d, &note);
}

bool pstd_once_is_retried(const struct pstd_daemon *d,
                          const struct pst_diag *why)
{
    return d->config->stay && d->to_resume && is_temporary(d, why->status, why);
}

/* In a job with --stay: continues the run during which the ranks have died, if
 * there is one. */
static void continue_run(struct pstd_daemon *d)
{
    struct pst_str options = {0};
    struct pst_diag diag;
    uint64_t step = 0;
    unsigned tries = 0;
    char id[PSTD_RUN_ID] = "";
    bool any;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstd_stay_next(d, &any, &options, id, &step, &tries, &diag);
    if (any && status == PST_OK)
        status = pstd_command_continue_run(d, &options, id, &diag);
    d->to_resume = any && status == PST_OK;
    if (any && is_temporary(d, status, &diag)) {
        delay_run(d, step, &diag);
    } else if (any) {
        emit_run(d, step, tries, status, &diag);
        if (status != PST_OK)
            pstd_stay_remove(d);
    }
    pst_str_fini(&options);
}

void pstd_once_ready(struct pstd_daemon *d)
{
    struct pst_diag diag;

    if (d->config->stay && d->job.state == PSTD_JOB_READY)
        continue_run(d);
    if (!owns_only_run(d) || d->job.state != PSTD_JOB_READY)
        return;
    pst_diag_init(&diag);
    if ((d->config->serve
             ? pstd_mailbox_order(d->mailbox, PSTD_ORDER_SERVE, "", 0, &diag)
             : pstd_command_run(d, &diag)) == PST_OK)
        return;
    (void)fprintf(stderr, "penstockd: %s%s\n", diag.text,
                  pst_error_tag(diag.error));
    d->refused = diag;
    pstd_daemon_stop(d, "refused", true);
}

void pstd_once_tick(struct pstd_daemon *d)
{
    if (d->wait_s > 0 && --d->wait_s == 0 && d->job.state == PSTD_JOB_READY)
        continue_run(d);
}

void pstd_once_end(struct pstd_daemon *d)
{
    const struct pst_diag *why = &d->result->diag;

    if (pstd_once_is_retried(d, why)) {
        delay_run(d, d->result->steps, why);
    } else {
        d->to_resume = false;
        pstd_stay_remove(d);
    }
    if (owns_only_run(d) && d->job.state == PSTD_JOB_READY)
        pstd_daemon_stop(d, "end of the run", true);
}

/* Frees all but the newest part of the file with the ranks' output by making a
 * hole, so that offsets stay the same. On a file system without holes, empties
 * the file, which the ranks have open for appending. The client that should
 * read the file may be suspended or gone. */
void pstd_once_trim(const struct pstd_daemon *d)
{
    struct pst_str path = {0};
    struct stat st;
    int fd = -1;

    if (d->config->run_id == NULL || d->rank != 0 || d->socket == NULL)
        return;
    pst_str_addf(&path, "%s" PSTD_SOCKET_OUTPUT, d->socket);
    if (!path.failed)
        fd = open(path.text, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    pst_str_fini(&path);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (off_t)st.st_blocks * 512 > MAX_OUTPUT && st.st_size > MAX_OUTPUT &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  st.st_size - KEPT_OUTPUT) != 0 &&
        ftruncate(fd, 0) != 0)
        errno = 0; /* the file keeps growing */
    (void)close(fd);
}

/* Writes the result beside the socket, for a client that is suspended now and
 * asks for the result after the job has ended. Writes nothing if the folder was
 * removed: by now it may be another job's, which would seem to have this
 * result. */
void pstd_once_record(struct pstd_daemon *d)
{
    struct pst_str path = {0}, frames = {0};
    struct pst_diag diag;
    enum pst_status status;

    if (!owns_only_run(d) || d->socket == NULL || d->result == NULL ||
        !pstd_lock_is_current(d->control.listener.lock_fd,
                              d->control.listener.lock))
        return;
    pst_str_addf(&path, "%s" PSTD_SOCKET_RESULT, d->socket);
    pstd_command_record(d, &frames);
    if (path.failed || frames.failed)
        status = pst_diag_nomem(&diag, frames.len);
    else
        status = pst_file_write(path.text, frames.text, frames.len, &diag);
    if (status != PST_OK)
        (void)fprintf(stderr, "penstockd: the result is not kept: %s%s\n",
                      diag.text, pst_error_tag(diag.error));
    pst_str_fini(&path);
    pst_str_fini(&frames);
}
