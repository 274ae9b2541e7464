// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_ATTEMPT_H
#define PENSTOCK_DAEMON_CTL_RUN_ATTEMPT_H
/*
 * One start of a job's ranks, from mpirun to their end, as seen by the client
 * that started them. A supervised job has several starts in succession. One
 * thread.
 */
#include "daemon/common/logfile.h"
#include "daemon/common/past.h"
#include "daemon/ctl/hosts/hosts.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/run/launch.h"
#include "daemon/ctl/run/setup.h"
#include "daemon/ctl/run/unsaved.h"
#include "stages/base/host/alive.h"

struct pstctl_attempt {
    /* State of the job. */
    const struct pstd_config *config; /* as the user gave it */
    struct pstctl_setup setup;
    struct pstctl_owner owner;
    struct pstctl_hosts hosts;
    unsigned ranks;
    char job[PSTD_PAST_JOB + 1]; /* prefix of the run ids of all starts */
    int signal_fd;
    int *begun_fd; /* pipe to a process that waits for `begun`; NULL: none */
    struct pstd_log_claim log_claim; /* held until the job has begun */
    bool supervised;                 /* the job does not outlive this process */
    unsigned signals;   /* number of received signals that end the job */
    int signal;         /* the first such signal */
    uint64_t signal_ms; /* time of the newest such signal */
    bool asked;         /* another process asked the job to end: no restart */
    uint64_t restarts;  /* number of restarts so far */
    /* State that would be lost if the job died now, derived from the events of
     * all starts. */
    struct pstctl_unsaved unsaved;
    /* Anonymous file in memory (memfd) in which rank 0 of a job with --stay
     * describes its current run; -1: none. */
    int kept_run;
    /* State of the newest start. */
    struct pstctl_launch launch;
    struct pstctl_follow follow;
    struct pstctl_progress progress;
    struct pst_awake awake; /* time since the ranks were started */
    /* Time since which rank 0 has been missing; 0: it is connected. */
    uint64_t gone_ms;
    /* time since which a killed process has not ended; 0: there is none */
    uint64_t stuck_ms;
    bool stop_sent;  /* the job was asked to stop */
    bool left;       /* the terminal was closed: the job continues */
    bool begun;      /* the job trains, serves or waits for runs */
    double begun_at; /* time at which `begun` was set */
    bool over;       /* the event train_end has been received */
    pstd_frame *end; /* the frame of that event, owned; NULL: none */
    bool answered;   /* the result of the run has been received */
    bool spread;     /* ranks are on more than one host */
    bool no_hosts;   /* the ranks were not started: hosts were missing */
    bool died;       /* the ranks ended without a result */
    bool waits;      /* the user knows that a killed process does not end */
};

/* Sets up names, plan and signals of the job that config describes. The caller
 * sets a->begun_fd and a->log_claim before, and calls fini in any case. */
enum pst_status pstctl_attempt_init(struct pstctl_attempt *a,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Starts the ranks with these options, which equal config's except after a
 * restart. */
enum pst_status pstctl_attempt_start(struct pstctl_attempt *a,
                                     const struct pstd_config *options,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Watches until the ranks have ended, or until the terminal is closed
 * (a->left). Returns the status of the run. */
enum pst_status pstctl_attempt_watch(struct pstctl_attempt *a,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns how the job was asked to stop; PST_E_NONE: it was not. */
enum pst_error pstctl_attempt_stop_error(const struct pstctl_attempt *a);
/* Waits for `seconds`, or until a signal ends the job (PST_ERR_CANCELLED,
 * PST_ERR_TERMINATED). */
enum pst_status pstctl_attempt_wait(struct pstctl_attempt *a, unsigned seconds,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Kills the remaining processes of the launcher's session. */
void pstctl_attempt_reap(struct pstctl_attempt *a);
/* Kills the remaining processes of the newest start, and clears its state. */
void pstctl_attempt_end(struct pstctl_attempt *a);
/* Removes all files of the job, unless the job continues without this
 * process. */
void pstctl_attempt_fini(struct pstctl_attempt *a);

#endif
