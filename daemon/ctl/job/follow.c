// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/follow.h"

#include <string.h>
#include <unistd.h>

#include "daemon/ctl/job/owner.h"
#include "stages/base/host/alive.h"

/* Milliseconds to wait before connecting again; multiplied by the number of
 * connections that have failed since the last frame. */
#define AGAIN_MS     20
#define MAX_FAILURES 50
/* milliseconds to wait before connecting again if the ranks of another job,
 * which has the name now, have answered */
#define FOREIGN_MS 500

static void record_job(struct pstctl_follow *f, const struct pstctl_conn *conn)
{
    if (f->pid == 0)
        f->owner = pstd_socket_owner(pst_str_text(&f->path));
    f->pid = conn->pid;
    memcpy(f->journal, conn->journal, sizeof(f->journal));
}

enum pst_status pstctl_follow_init(struct pstctl_follow *f,
                                   const struct pstctl_conn *conn,
                                   const char *path, uint64_t next,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    *f = (struct pstctl_follow){
        .conn = *conn, .next_conn = {.fd = -1}, .next = next};
    pst_str_add(&f->path, path);
    if (f->path.failed)
        return pst_diag_nomem(diag, strlen(path));
    if (conn->fd < 0)
        return PST_OK;
    record_job(f, conn);
    status = pstctl_watch_from(&f->conn, next, diag);
    if (status != PST_ERR_NO_DAEMON)
        return status;
    /* The rank has ended meanwhile; it may be started again. */
    pstctl_close(&f->conn);
    return PST_OK;
}

/* True if the process that starts the ranks of the followed job still owns the
 * job's name. */
static bool is_owned(const struct pstctl_follow *f)
{
    return f->owner > 0 &&
           pstd_socket_owner(pst_str_text(&f->path)) == f->owner;
}

/* Refuses another job that has taken the name of the followed job. A different
 * journal alone does not show that: the followed job creates a new journal if
 * the temporary folder with the first one was removed. */
static enum pst_status check_job(struct pstctl_follow *f,
                                 const struct pstctl_conn *conn,
                                 struct pst_diag *diag)
{
    const bool foreign =
        f->run_id[0] != '\0' && strcmp(f->run_id, conn->run_id) != 0;

    f->other = foreign && f->pid == 0;
    if (foreign) /* does not connect to the other job in a busy loop */
        f->again = pst_now() + 1e-3 * FOREIGN_MS;
    if (f->other)
        return pst_diag_set(diag, PST_E_SOCKET_IN_USE,
                            "the job %s is running already: process %llu has "
                            "its socket %s; choose another name with --job, or "
                            "end that job with `penstock stop`",
                            conn->job, (unsigned long long)conn->pid,
                            pst_str_text(&f->path));
    if (foreign ||
        (f->pid != 0 && f->pid != conn->pid &&
         (f->journal[0] == '\0' || strcmp(f->journal, conn->journal) != 0) &&
         !is_owned(f)))
        return pst_diag_set(diag, PST_E_JOB_NONE,
                            "the job has ended; process %llu, another one, "
                            "listens at %s now",
                            (unsigned long long)conn->pid,
                            pst_str_text(&f->path));
    return PST_OK;
}

/* Sends the request to watch, but does not wait for its reply, since the daemon
 * may be suspended; the reply arrives among the frames. */
static enum pst_status begin_watch(struct pstctl_follow *f,
                                   struct pst_diag *diag)
{
    const uint64_t first = f->next_conn.first_event;
    const bool is_new = f->pid != 0 && f->pid != f->next_conn.pid;
    Pst__Control__Watch watch = PST__CONTROL__WATCH__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;

    /* With a run id, skips events of earlier starts. If the journal could not
     * be read, a new start numbers its events from the beginning, and the
     * stream continues with the first of them. */
    watch.from = f->run_id[0] != '\0'        ? PST_MAX(f->next, first)
                 : is_new && first < f->next ? first
                                             : f->next;
    request.body_case = PST__CONTROL__REQUEST__BODY_WATCH;
    request.watch = &watch;
    return pstctl_send(&f->next_conn, &request, diag);
}

/* Connects unless there is a connection. PST_AGAIN: that takes longer than
 * timeout_ms. */
static enum pst_status try_connect(struct pstctl_follow *f, int timeout_ms,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (f->conn.fd >= 0)
        return PST_OK;
    if (pst_now() < f->again) {
        if (timeout_ms == 0)
            return PST_AGAIN;
        (void)usleep((useconds_t)(1e6 * (f->again - pst_now())) + 1);
    }
    if (f->next_conn.fd < 0) {
        status = pstctl_open_begin(pst_str_text(&f->path), &f->next_conn, diag);
        f->since = pst_now();
    }
    if (status == PST_OK)
        status = pstctl_open_finish(
            &f->next_conn, timeout_ms < 0 ? PSTCTL_HELLO_MS : timeout_ms, diag);
    if (status == PST_AGAIN) {
        if (pst_now() - f->since < 1e-3 * PSTCTL_HELLO_MS)
            return PST_AGAIN;
        status = pstctl_report_no_hello(diag);
    }
    if (status == PST_OK)
        status = check_job(f, &f->next_conn, diag);
    if (status == PST_OK)
        status = begin_watch(f, diag);
    if (status != PST_OK) {
        pstctl_close(&f->next_conn);
        return status;
    }
    f->conn = f->next_conn;
    f->next_conn = (struct pstctl_conn){.fd = -1};
    record_job(f, &f->conn);
    return PST_OK;
}

static void count_event(struct pstctl_follow *f, const pstd_frame *frame)
{
    if (frame->body_case != PST__CONTROL__FRAME__BODY_EVENT)
        return;
    if (frame->event->seq > 0)
        f->next = frame->event->seq + 1;
    f->missed += frame->event->dropped;
}

/* True if the daemon has dropped this client in favour of others. */
static bool is_dropped(const pstd_frame *frame)
{
    return frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
           frame->reply->id == 0 && frame->reply->status != PST_OK;
}

/* True for the reply that accepts the request to watch. */
static bool is_accepted(const pstd_frame *frame)
{
    return frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
           frame->reply->status == PST_OK;
}

static enum pst_status read_frame(struct pstctl_follow *f, int timeout_ms,
                                  pstd_frame **ret, struct pst_diag *diag)
{
    enum pst_status status = try_connect(f, timeout_ms, diag);

    while (status == PST_OK) {
        status = pstctl_read(&f->conn, timeout_ms, ret, diag);
        if (status != PST_OK || !is_accepted(*ret))
            break;
        pstd_frame_free(*ret);
        *ret = NULL;
    }
    if (status == PST_OK && is_dropped(*ret)) {
        status =
            pst_diag_set(diag, PST_E_JOB_MISSED, "%s", (*ret)->reply->text);
        pstd_frame_free(*ret);
        *ret = NULL;
    }
    return status;
}

enum pst_status pstctl_follow_next(struct pstctl_follow *f, int timeout_ms,
                                   pstd_frame **ret, struct pst_diag *diag)
{
    for (;;) {
        const bool had = f->conn.fd >= 0;
        enum pst_status status = read_frame(f, timeout_ms, ret, diag);

        if (status == PST_OK) {
            f->failures = 0;
            count_event(f, *ret);
        }
        if (status == PST_OK || status == PST_AGAIN || f->other)
            return status;
        if (!had && f->conn.fd < 0 && status != PST_ERR_BUSY)
            return status; /* there is no daemon to connect to */
        pstctl_close(&f->conn);
        if (++f->failures > MAX_FAILURES)
            return status;
        f->again = pst_now() + 1e-3 * AGAIN_MS * (f->failures - 1);
    }
}

enum pst_status pstctl_follow_job(struct pstctl_follow *f, pstd_frame **ret,
                                  struct pst_diag *diag)
{
    bool was_kept = true;

    for (;;) {
        const enum pst_status status = pstctl_follow_next(f, -1, ret, diag);

        /* If the process that starts the ranks has ended meanwhile, tries once
         * more, since it may have started ranks just before. */
        if (status != PST_ERR_NO_DAEMON || !was_kept || f->journal[0] == '\0')
            return status;
        was_kept = is_owned(f);
        (void)usleep(1000 * PSTCTL_OWNED_MS);
    }
}

int pstctl_follow_fd(const struct pstctl_follow *f)
{
    return f->conn.fd >= 0 ? f->conn.fd : f->next_conn.fd;
}

void pstctl_follow_fini(struct pstctl_follow *f)
{
    pstctl_close(&f->conn);
    pstctl_close(&f->next_conn);
    pst_str_fini(&f->path);
}
