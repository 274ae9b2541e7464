// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/follow.h"

#include <string.h>
#include <unistd.h>

#define AGAIN_MS     20 /* more for each connection that gave no frame */
#define MAX_FAILURES 50

enum pst_status pstctl_follow_init(struct pstctl_follow *f,
                                   const struct pstctl_conn *conn,
                                   const char *path, uint64_t next,
                                   struct pst_diag *diag)
{
    *f = (struct pstctl_follow){.conn = *conn, .next = next};
    if (conn->fd >= 0)
        f->pid = conn->pid;
    pst_str_add(&f->path, path);
    if (f->path.failed)
        return pst_diag_nomem(diag, strlen(path));
    return conn->fd >= 0 ? pstctl_watch_from(&f->conn, next, diag) : PST_OK;
}

/* Is this the job that we followed? Another may have taken its name. */
static enum pst_status check_job(struct pstctl_follow *f,
                                 const struct pstctl_conn *conn,
                                 struct pst_diag *diag)
{
    f->other = f->run_id[0] != '\0' && strcmp(f->run_id, conn->run_id) != 0;
    if (f->other)
        return pst_diag_set(diag, PST_ERR_BUSY,
                            "the job %s is running already: process %llu has "
                            "its socket %s; choose another name with --job, or "
                            "end that job with `penstock stop`",
                            conn->job, (unsigned long long)conn->pid,
                            pst_str_text(&f->path));
    if (f->pid != 0 && f->pid != conn->pid)
        return pst_diag_set(diag, PST_ERR_NO_DAEMON,
                            "the job has ended; process %llu, another one, "
                            "listens at %s now",
                            (unsigned long long)conn->pid,
                            pst_str_text(&f->path));
    return PST_OK;
}

enum pst_status pstctl_follow_connect(struct pstctl_follow *f,
                                      struct pst_diag *diag)
{
    struct pstctl_conn conn = {.fd = -1};
    enum pst_status status;

    if (f->conn.fd >= 0)
        return PST_OK;
    status = pstctl_open(pst_str_text(&f->path), &conn, diag);
    if (status != PST_OK)
        return status;
    status = check_job(f, &conn, diag);
    if (status == PST_OK)
        status = pstctl_watch_from(&conn, f->next, diag);
    if (status != PST_OK) {
        pstctl_close(&conn);
        return status;
    }
    f->conn = conn;
    f->pid = conn.pid;
    return PST_OK;
}

static void take_number(struct pstctl_follow *f, const pstd_frame *frame)
{
    if (frame->body_case != PST__CONTROL__FRAME__BODY_EVENT)
        return;
    if (frame->event->seq > 0)
        f->next = frame->event->seq + 1;
    f->missed += frame->event->dropped;
}

/* Others needed our place. */
static bool is_farewell(const pstd_frame *frame)
{
    return frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
           frame->reply->id == 0 && frame->reply->status != PST_OK;
}

enum pst_status pstctl_follow_next(struct pstctl_follow *f, int timeout_ms,
                                   pstd_frame **ret, struct pst_diag *diag)
{
    for (;;) {
        enum pst_status status = pstctl_follow_connect(f, diag);

        if (status == PST_OK)
            status = pstctl_read(&f->conn, timeout_ms, ret, diag);
        if (status == PST_OK && is_farewell(*ret)) {
            status =
                pst_diag_set(diag, PST_ERR_BUSY, "%s", (*ret)->reply->text);
            pstd_frame_free(*ret);
            *ret = NULL;
        }
        if (status == PST_OK) {
            f->failures = 0;
            take_number(f, *ret);
        }
        if (status == PST_OK || status == PST_AGAIN || f->other)
            return status;
        if (f->conn.fd < 0 && status != PST_ERR_BUSY)
            return status; /* there is nobody to connect to */
        pstctl_close(&f->conn);
        if (++f->failures > MAX_FAILURES)
            return status;
        (void)usleep(AGAIN_MS * 1000 * (f->failures - 1));
    }
}

void pstctl_follow_fini(struct pstctl_follow *f)
{
    pstctl_close(&f->conn);
    pst_str_fini(&f->path);
}
