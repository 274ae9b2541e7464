// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_RESTART_H
#define PENSTOCK_DAEMON_CTL_RUN_RESTART_H
/*
 * Decides if a job that died is restarted, when, and with how many ranks;
 * daemon/common/past.h selects the checkpoint. One thread.
 */
#include "daemon/common/config.h"

/* Counts consecutive restarts without a newer checkpoint. */
struct pstctl_budget {
    uint64_t limit; /* maximum; 0: the job is never restarted */
    uint64_t used;
    uint64_t step; /* newest checkpoint at the last end; 0: none */
};

/* Call when the job has died; step: its newest good checkpoint, 0: none. False:
 * the limit is reached. *ret_delay_s: time to wait before the restart: none
 * after progress, then 1, 2, 4 ... 60 seconds. */
bool pstctl_budget_take(struct pstctl_budget *b, uint64_t step,
                        unsigned *ret_delay_s);

/* The same for a start with fewer ranks: without delay, and with a new
 * budget. */
bool pstctl_budget_renew(struct pstctl_budget *b, uint64_t step);

/*
 * Number of ranks of a pipeline: as at the first start, until two consecutive
 * starts with that number have ended by the loss of a rank (pstctl_end_is_loss)
 * without a newer checkpoint. Then one less, down to `least`. The number of
 * replicas is kept, since the results depend on it.
 */
struct pstctl_ranks {
    const struct pstd_config *config; /* borrowed; as the user gave it */
    unsigned stages;                  /* of the plan */
    unsigned now;                     /* in the newest start */
    unsigned least;                   /* equals `now` if the number is fixed */
    unsigned losses; /* consecutive losses with this number of ranks */
    uint64_t step;   /* newest checkpoint at the last end; 0: none */
};

/* Sets the ranks of the job's first start, and the minimum by --min-ranks.
 * PST_ERR_USAGE: the minimum is impossible. */
enum pst_status pstctl_ranks_init(struct pstctl_ranks *r,
                                  const struct pstd_config *config,
                                  unsigned stages, unsigned ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the job has died. lost: by the loss of a rank; step: its newest
 * good checkpoint, 0: none; missing: ranks of the job without a host, 0:
 * unknown. True: the next start has fewer ranks, r->now. */
bool pstctl_fewer_ranks(struct pstctl_ranks *r, bool lost, uint64_t step,
                        unsigned missing);
/* Makes the options of a start with r->now ranks: a placement for another
 * number of ranks is dropped, so that the schedule decides; a rank keeps its
 * number of kernel threads, since the results depend on it. */
enum pst_status pstctl_ranks_config(const struct pstctl_ranks *r,
                                    struct pstd_config *options,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
