// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
#define PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
/*
 * The event stream of a job across connections. A connection is lost if this
 * process was suspended, or if the daemon dropped it in favour of other
 * clients. The stream then reconnects, and continues with the first event that
 * was not received yet. One thread.
 */
#include "daemon/ctl/job/conn.h"

struct pstctl_follow {
    struct pstctl_conn conn; /* current connection; fd -1: none */
    /* connection that waits for Hello; fd -1: none */
    struct pstctl_conn next_conn;
    double since;        /* time at which next_conn was opened */
    double again;        /* time before which no connection is
                          * opened */
    struct pst_str path; /* path of the socket */
    char run_id[33];     /* id that the job must have; "": any */
    uint64_t pid;        /* pid of the daemon; 0: unknown */
    char journal[256];   /* events file; "": none, and pid must not change */
    int owner;           /* process that starts the ranks; 0: none known */
    uint64_t next;       /* number of the next event; 0: from now on */
    uint64_t missed;     /* events that were no longer available */
    unsigned failures;   /* failed connections since the last frame */
    bool other;          /* the first answer came from another job */
};

/* Takes the connection. If it is closed (fd -1) or is lost here, the first call
 * of pstctl_follow_next() reconnects. */
enum pst_status pstctl_follow_init(struct pstctl_follow *f,
                                   const struct pstctl_conn *conn,
                                   const char *path, uint64_t next,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the next frame (owned), except replies that report success; connects
 * if necessary. PST_AGAIN: there was none within timeout_ms (-1: waits without
 * limit; 0: does not wait, even if the daemon is suspended). PST_ERR_NO_DAEMON:
 * no process listens, another job listens, or the job has ended. PST_ERR_BUSY:
 * the daemon has refused connections for a long time, or f->other was set, and
 * diag names the other job. */
enum pst_status pstctl_follow_next(struct pstctl_follow *f, int timeout_ms,
                                   pstd_frame **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the next frame (owned) without a time limit. Waits even while the
 * ranks are restarted, as long as the process that started them owns the job.
 */
enum pst_status pstctl_follow_job(struct pstctl_follow *f, pstd_frame **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the descriptor to poll for the next frame; -1: there is no connection
 * now. */
int pstctl_follow_fd(const struct pstctl_follow *f);
void pstctl_follow_fini(struct pstctl_follow *f);
/* Initial value, without connection and path. */
#define PSTCTL_FOLLOW_NONE                                                     \
    {                                                                          \
        .conn = {.fd = -1}, .next_conn = {.fd = -1 }                           \
    }

#endif
