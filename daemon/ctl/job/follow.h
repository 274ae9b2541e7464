// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
#define PENSTOCK_DAEMON_CTL_JOB_FOLLOW_H
/*
 * The event stream of a job across connections: if the connection is lost,
 * because this process was suspended or was dropped for others, it reconnects
 * and continues with the first event not seen yet. One thread.
 */
#include "daemon/ctl/job/conn.h"

struct pstctl_follow {
    struct pstctl_conn conn;      /* fd -1: none at the moment */
    struct pstctl_conn next_conn; /* waiting for its Hello; fd -1: none */
    double since;                 /* time at which that began */
    double again;                 /* time of the next attempt */
    struct pst_str path;          /* of the socket */
    char run_id[33];              /* the job must have this id; "": any */
    uint64_t pid;                 /* the daemon; 0: unknown */
    char journal[256]; /* file of events; with one the pid may change */
    int owner;         /* process that starts the ranks; 0: none known */
    uint64_t next;     /* number of the next event; 0: from now on */
    uint64_t missed;   /* events that were no longer available */
    unsigned failures; /* failed connections since the last frame */
    bool other;        /* the socket belongs to another job */
};

/* Takes the connection, which may be closed (fd -1); one that is lost here is
 * made again by the first call of pstctl_follow_next(). */
enum pst_status pstctl_follow_init(struct pstctl_follow *f,
                                   const struct pstctl_conn *conn,
                                   const char *path, uint64_t next,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the next frame (owned), except replies of success; connects if
 * necessary. PST_AGAIN after timeout_ms (-1: never; 0: does not wait, even if
 * the peer is suspended). PST_ERR_NO_DAEMON: nobody listens, another job
 * listens, or the job has gone; PST_ERR_BUSY: refused for a long time, or, with
 * `other`, the job belongs to another run, which diag names. */
enum pst_status pstctl_follow_next(struct pstctl_follow *f, int timeout_ms,
                                   pstd_frame **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The same without a time limit, even while the ranks are restarted, as long as
 * the process that started them owns the job. */
enum pst_status pstctl_follow_job(struct pstctl_follow *f, pstd_frame **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Descriptor to poll besides others, or -1. */
int pstctl_follow_fd(const struct pstctl_follow *f);
void pstctl_follow_fini(struct pstctl_follow *f);
/* Initial value, without connection and path. */
#define PSTCTL_FOLLOW_NONE                                                     \
    {                                                                          \
        .conn = {.fd = -1}, .next_conn = {.fd = -1 }                           \
    }

#endif
