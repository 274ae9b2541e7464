// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PLAN_RAMP_H
#define PENSTOCK_DAEMON_CTL_PLAN_RAMP_H
/* Predictions of `penstock plan` for a ramp of --microbatches. One thread. */
#include "daemon/common/config.h"
#include "stages/layout/options.h"
#include "stages/sched/simulate.h"

#include <jansson.h>

/* Prediction for one number of microbatches. */
struct pstctl_ramp_part {
    unsigned microbatches;
    char schedule[64];
    double step, bubble;
    size_t peak; /* bytes of the largest arena of a rank */
};
struct pstctl_ramp {
    struct pstd_ramp ramp;
    unsigned counts[PSTD_RAMP_ROWS], n;
    /* one for each of `counts` */
    struct pstctl_ramp_part parts[PSTD_RAMP_ROWS];
};

/* Sets the numbers of microbatches of the ramp in options, which borrow them
 * from *ret. If the number never changes, does not change options. */
void pstctl_ramp_init(const struct pstd_config *config, struct pstctl_ramp *ret,
                      struct pst_exec_options *options);
/* Predicts a step for each number of microbatches. *ret_sched (owned): the
 * schedule with the most microbatches. memory: for each rank, its largest
 * memory over all numbers of microbatches. */
enum pst_status pstctl_ramp_predict(struct pstctl_ramp *ramp,
                                    struct pst_plan *plan,
                                    const struct pst_exec_options *options,
                                    const struct pst_costs *costs,
                                    struct pst_memory *memory,
                                    struct pst_schedule **ret_sched,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns an array with an object for each row of the ramp; null if the number
 * never changes. */
json_t *pstctl_ramp_json(const struct pstctl_ramp *ramp);
void pstctl_ramp_show(const struct pstctl_ramp *ramp);

#endif
