// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SUPERVISE_H
#define PENSTOCK_DAEMON_CTL_RUN_SUPERVISE_H
/*
 * Supervises a job from its first start to its last end: restarts it when it
 * dies, until its budget is used up. The caller provides the functions that
 * start ranks and wait: `penstock run` (run.c), or a simulated world
 * (tests/sim/). One thread.
 */
#include "daemon/common/past.h"
#include "daemon/ctl/run/ends.h"
#include "daemon/ctl/run/restart.h"
#include "daemon/ctl/run/unsaved.h"

/* Result of one start of the ranks. */
struct pstctl_fate {
    bool died; /* the ranks ended without reporting a result */
    /* how the job was asked to stop; PST_E_NONE: it was not */
    enum pst_error asked;
    bool forced;    /* the job was asked twice, so the ranks were killed */
    bool begun;     /* options and files were accepted */
    bool no_hosts;  /* the ranks were not started: hosts were missing */
    unsigned slots; /* with no_hosts: number of ranks that have a host */
    /* the kernel killed a process for lack of memory while the ranks ran */
    bool oom;
    uint64_t step;  /* newest finished step that was reported */
    uint64_t saved; /* step of the newest checkpoint seen; 0: none */
    double begun_s; /* seconds from `begun` to the end */
    /* State of the job over all starts that no checkpoint contains; borrowed;
     * NULL: none. */
    const struct pstctl_unsaved *unsaved;
    const struct pstctl_launch *launch; /* borrowed until `clear` */
    const char *placement; /* borrowed until `clear`; NULL: unknown */
};

struct pstctl_starter {
    /* Starts `ranks` ranks of each pipeline with these options, and waits for
     * their end; returns the status of the run. */
    enum pst_status (*run)(void *ctx, const struct pstd_config *options,
                           unsigned ranks, struct pstctl_fate *ret,
                           struct pst_diag *diag);
    /* Kills the remaining processes of the last start, and clears its state. */
    void (*clear)(void *ctx);
    /* Waits; PST_ERR_CANCELLED, PST_ERR_TERMINATED: the job was stopped. */
    enum pst_status (*wait)(void *ctx, unsigned seconds, struct pst_diag *diag);
    void *ctx;
};

/* The caller sets config, starter, record, ranks and job before the start; the
 * other members are zero. */
struct pstctl_supervisor {
    const struct pstd_config *config; /* borrowed; as the user gave it */
    struct pstctl_starter starter;
    struct pstctl_record record;
    struct pstd_past past;
    struct pstctl_budget budget;
    struct pstctl_ranks ranks;
    /* prefix of the run ids of all starts; "": none */
    char job[PSTD_PAST_JOB + 1];
    uint64_t restarts; /* number of restarts so far */
    /* Number of starts that lasted a minute or longer, which is the progress of
     * a job with --stay. */
    uint64_t served;
};

/* Runs the job; returns how it finally ended. */
enum pst_status pstctl_supervise(struct pstctl_supervisor *s,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
