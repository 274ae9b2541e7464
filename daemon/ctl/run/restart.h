// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_RESTART_H
#define PENSTOCK_DAEMON_CTL_RUN_RESTART_H
/*
 * Whether a job that died is started again, when, and with how many ranks; from
 * which checkpoint it goes on: daemon/common/past.h. One thread.
 */
#include "daemon/common/config.h"

/* Restarts in a row that brought no newer checkpoint. */
struct pstctl_budget {
    uint64_t limit; /* of them; 0: the job is never started again */
    uint64_t used;
    uint64_t step; /* newest checkpoint at the newest end; 0: none */
};

/* The job has died; step: its newest good checkpoint, 0: none. False: the
 * budget is spent. *ret_delay_s: to wait first: nothing after progress, then 1,
 * 2, 4 ... 60 seconds. */
bool pstctl_budget_take(struct pstctl_budget *b, uint64_t step,
                        unsigned *ret_delay_s);

/* The same of a start that is another one, with fewer ranks: at once, and it
 * has the whole budget. */
bool pstctl_budget_renew(struct pstctl_budget *b, uint64_t step);

/*
 * Ranks of a pipeline: as many as at the first start, until starts with so many
 * have ended twice in a row, without a newer checkpoint, by the loss of a rank
 * (pstctl_end_is_loss). Then one less, down to `least`. Replicas stay as many
 * as they are, since the bits depend on their number.
 */
struct pstctl_ranks {
    const struct pstd_config *config; /* borrowed; as the user gave it */
    unsigned stages;                  /* of the plan */
    unsigned now;                     /* in the newest start */
    unsigned least;                   /* `now` if there are never fewer */
    unsigned losses;                  /* ends in a row, with so many ranks */
    uint64_t step; /* newest checkpoint at the newest end; 0: none */
};

/* Ranks of the first start of the job, and what --min-ranks allows.
 * PST_ERR_USAGE: it cannot be so few. */
enum pst_status pstctl_ranks_init(struct pstctl_ranks *r,
                                  const struct pstd_config *config,
                                  unsigned stages, unsigned ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The job has died. lost: by the loss of a rank; step: its newest good
 * checkpoint, 0: none; missing: ranks of the job for which there is no place
 * any more, 0: not known. True: the next start has fewer, r->now. */
bool pstctl_fewer_ranks(struct pstctl_ranks *r, bool lost, uint64_t step,
                        unsigned missing);
/* Options of a start with r->now ranks: places that were given for another
 * number of ranks go, so that the schedule decides; a rank has as many kernel
 * threads as at first, since the bits depend on their number. */
enum pst_status pstctl_ranks_config(const struct pstctl_ranks *r,
                                    struct pstd_config *options,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
