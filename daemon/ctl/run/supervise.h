// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SUPERVISE_H
#define PENSTOCK_DAEMON_CTL_RUN_SUPERVISE_H
/*
 * A job from its first start to its last end: it is started again until it ends
 * otherwise than by dying, or its budget is spent. What starts ranks, and what
 * waits, is the caller's: `penstock run` (run.c), or a world that is played
 * (tests/sim/). One thread.
 */
#include "daemon/common/past.h"
#include "daemon/ctl/run/ends.h"
#include "daemon/ctl/run/restart.h"
#include "daemon/ctl/run/unsaved.h"

/* How a start of the ranks ended. */
struct pstctl_fate {
    bool died;            /* it ended without a result */
    enum pst_error asked; /* what somebody had asked it to end as, or none */
    bool begun;           /* options and files were accepted */
    bool homeless;        /* died before it began: hosts were not there */
    unsigned room;        /* then: ranks for which there is a place */
    bool oom;       /* the kernel has killed a process for memory meanwhile */
    uint64_t step;  /* newest that was seen to end */
    uint64_t saved; /* newest that was seen to be saved; 0: none */
    double begun_s; /* seconds since it had begun */
    /* What was so besides, and no checkpoint has; borrowed until the next
     * start; NULL: nothing. */
    const struct pstctl_unsaved *unsaved;
    const struct pstctl_launch *launch; /* borrowed until `clear` */
    const char *placement;              /* the same; NULL: not known */
};

struct pstctl_starter {
    /* Starts so many ranks of each pipeline with these options and waits for
     * their end; how the run went. */
    enum pst_status (*run)(void *ctx, const struct pstd_config *options,
                           unsigned ranks, struct pstctl_fate *ret,
                           struct pst_diag *diag);
    /* Kills what is left of that start, and forgets it. */
    void (*clear)(void *ctx);
    /* Waits; PST_ERR_CANCELLED, PST_ERR_TERMINATED: the job was stopped. */
    enum pst_status (*rest)(void *ctx, unsigned seconds, struct pst_diag *diag);
    void *ctx;
};

/* At first config, starter, record and ranks; the rest zero. */
struct pstctl_supervisor {
    const struct pstd_config *config; /* borrowed; as the user gave it */
    struct pstctl_starter starter;
    struct pstctl_record record;
    struct pstd_past past;
    struct pstctl_budget budget;
    struct pstctl_ranks ranks;
    uint64_t restarts; /* so far */
    uint64_t served;   /* of a job that stays: starts that lasted for long */
};

/* How the job ended at last. */
enum pst_status pstctl_supervise(struct pstctl_supervisor *s,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
