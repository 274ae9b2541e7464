// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_RESTART_H
#define PENSTOCK_DAEMON_CTL_RUN_RESTART_H
/*
 * Decides whether a job that died is restarted, when, and with how many ranks;
 * daemon/common/past.h selects the checkpoint. One thread.
 */
#include "daemon/common/config.h"

/* Number of consecutive restarts without a newer checkpoint. */
struct pstctl_budget {
    /* maximum number of restarts; 0: the job is never restarted */
    uint64_t limit;
    uint64_t used;
    uint64_t step; /* newest checkpoint when the job last ended; 0: none */
};

/* Counts a restart of a job that has died. False: the limit is reached. step:
 * the job's newest good checkpoint, 0: none. *ret_delay_s: seconds to wait
 * before the restart: 0 after progress, then 1, 2, 4 ... 60. */
bool pstctl_budget_use(struct pstctl_budget *b, uint64_t step,
                       unsigned *ret_delay_s);

/* Begins a new budget, for a restart with fewer ranks. False: the job is never
 * restarted. */
bool pstctl_budget_renew(struct pstctl_budget *b, uint64_t step);

/*
 * Number of ranks of a pipeline. It is that of the first start until two
 * consecutive starts with the same number have ended by the loss of a rank
 * (pstctl_end_is_loss) without a newer checkpoint. Then it decreases by one,
 * down to `least`. The number of replicas never changes, since the results
 * depend on it.
 */
struct pstctl_ranks {
    const struct pstd_config *config; /* as the user gave it; borrowed */
    unsigned stages;                  /* stages of the plan */
    unsigned now;                     /* number of ranks in the newest start */
    unsigned least;  /* minimum number of ranks, by --min-ranks */
    unsigned losses; /* consecutive losses with this number of ranks */
    uint64_t step;   /* newest checkpoint when the job last ended; 0: none */
};

/* Sets the ranks of the job's first start, and the minimum by --min-ranks.
 * PST_ERR_USAGE: the minimum is impossible. */
enum pst_status pstctl_ranks_init(struct pstctl_ranks *r,
                                  const struct pstd_config *config,
                                  unsigned stages, unsigned ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Decides whether a job that has died is restarted with fewer ranks. True: it
 * is, and r->now is the new number of ranks. lost: the job died by the loss of
 * a rank. step: step of its newest good checkpoint, 0: none. missing: number of
 * ranks without a host, 0: unknown. */
bool pstctl_ranks_reduce(struct pstctl_ranks *r, bool lost, uint64_t step,
                         unsigned missing);
/* Makes the options of a start with r->now ranks. Drops a placement for another
 * number of ranks, so that the schedule decides. Keeps the number of kernel
 * threads of a rank, since the results depend on it. */
enum pst_status pstctl_ranks_config(const struct pstctl_ranks *r,
                                    struct pstd_config *options,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
