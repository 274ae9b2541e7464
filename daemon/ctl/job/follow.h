// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
#define PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
/*
 * The events of a job, one after the other, whatever becomes of the connection:
 * who was asleep, or was dropped because others needed the place, connects
 * again and goes on with the first event that it has not seen. One thread.
 */
#include "daemon/ctl/job/conn.h"

struct pstctl_follow {
    struct pstctl_conn conn;      /* fd -1: none at the moment */
    struct pstctl_conn next_conn; /* has not said hello yet; fd -1: none */
    double since;                 /* when that was begun */
    double again;                 /* not before that time */
    struct pst_str path;          /* of the socket */
    char run_id[33];              /* the job must have this one; "": any */
    uint64_t pid;                 /* of its daemon; 0: not known yet */
    char journal[256];            /* of its events; then pid may change */
    uint64_t next;                /* event wanted next; 0: from now on */
    uint64_t missed;              /* events that were gone when we asked */
    unsigned failures;            /* connections since the last frame */
    bool other;                   /* the socket is another job's */
};

/* Takes the connection, which need not be one yet (fd -1). */
enum pst_status pstctl_follow_init(struct pstctl_follow *f,
                                   const struct pstctl_conn *conn,
                                   const char *path, uint64_t next,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Next frame (owned), but for replies that all is well; connects if there is no
 * connection. PST_AGAIN after timeout_ms (-1: never; 0 never waits, whoever is
 * asleep at the other end). PST_ERR_NO_DAEMON: nobody listens, another job than
 * before, or the job is gone; PST_ERR_BUSY: no place for us, for a long time,
 * or, with `other`, a job of somebody else, which diag names. */
enum pst_status pstctl_follow_next(struct pstctl_follow *f, int timeout_ms,
                                   pstd_frame **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The same without a limit of time, also while the ranks are started again: for
 * as long as somebody has the job. */
enum pst_status pstctl_follow_job(struct pstctl_follow *f, pstd_frame **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* What to wait for besides: its descriptor, or -1. */
int pstctl_follow_fd(const struct pstctl_follow *f);
void pstctl_follow_fini(struct pstctl_follow *f);
/* Of a follow that has no connection and no path yet. */
#define PSTCTL_FOLLOW_NONE                                                     \
    {                                                                          \
        .conn = {.fd = -1}, .next_conn = {.fd = -1 }                           \
    }

#endif
