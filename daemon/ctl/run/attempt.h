// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_ATTEMPT_H
#define PENSTOCK_DAEMON_CTL_RUN_ATTEMPT_H
/*
 * One start of a job's ranks, from mpirun to their end, seen by the client that
 * started them. A supervised job has several, one after the other. One thread.
 */
#include "daemon/ctl/hosts/hosts.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/run/launch.h"
#include "daemon/ctl/run/setup.h"
#include "daemon/ctl/run/unsaved.h"
#include "stages/base/host/alive.h"

struct pstctl_attempt {
    /* Of the job. */
    const struct pstd_config *config; /* as the user gave it */
    struct pstctl_setup setup;
    struct pstctl_owner owner;
    struct pstctl_hosts hosts;
    unsigned ranks;
    int signal_fd;
    int *begun_fd;      /* closed when the run begins; NULL: nobody waits */
    bool supervised;    /* this process and the job end together */
    unsigned signals;   /* that came and end the job */
    int signal;         /* the first of them */
    uint64_t signal_ms; /* when the newest came */
    bool asked;         /* others have asked the job to end: it is not started
                         * again, however it does */
    uint64_t restarts;  /* so far */
    struct pstctl_unsaved unsaved; /* of all starts */
    /* Of the newest start. */
    struct pstctl_launch launch;
    struct pstctl_follow follow;
    struct pstctl_progress progress;
    struct pst_awake awake; /* since the ranks were started */
    uint64_t gone_ms;       /* rank 0 was there, and is not since; 0: it is */
    uint64_t stuck_ms;      /* since when a killed process is waited for */
    bool told;              /* the job was asked to stop */
    bool left;              /* the terminal was closed: the job goes on */
    bool begun;             /* it trains, serves or waits for runs */
    double begun_at;        /* when */
    bool over;              /* train_end seen */
    bool answered;          /* its result has come */
    bool spread;            /* on more than one host */
    bool homeless;          /* died before it began: hosts were not there */
    bool died;              /* it ended without a result */
    bool waits;             /* for a process that does not end, and said so */
};

/* Names, plan and signals of the job that config describes; begun_fd alone is
 * there before. Whatever it returns, fini is called for. */
enum pst_status pstctl_attempt_init(struct pstctl_attempt *a,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Starts the ranks with these options, which are config's but for a restart.
 */
enum pst_status pstctl_attempt_start(struct pstctl_attempt *a,
                                     const struct pstd_config *options,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Until the ranks have ended, or are left alone; how the run went. */
enum pst_status pstctl_attempt_watch(struct pstctl_attempt *a,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* What somebody asked the job to end as; PST_E_NONE: nobody has. */
enum pst_error pstctl_attempt_asked(const struct pstctl_attempt *a);
/* Waits for seconds, or until a signal ends the job (PST_ERR_CANCELLED). */
enum pst_status pstctl_attempt_rest(struct pstctl_attempt *a, unsigned seconds,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Kills what is left of the newest start, and forgets it. */
void pstctl_attempt_end(struct pstctl_attempt *a);
/* Removes all files of the job, unless it goes on without us. */
void pstctl_attempt_fini(struct pstctl_attempt *a);

#endif
