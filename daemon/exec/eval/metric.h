// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_METRIC_H
#define PENSTOCK_DAEMON_EXEC_EVAL_METRIC_H
/* --eval-metric: an output of the model by which evaluations are compared.
 * Exec thread. */
#include "daemon/common/config.h"
#include "daemon/common/options/sets.h"
#include "stages/run/data/mean.h"
#include "stages/run/exec.h"

struct pstd_eval_metric {
    bool on, largest;
    unsigned output; /* index in plan->outputs */
    enum pst_dtype dtype;
    enum pst_mean_by by;
    unsigned n; /* number of microbatches of a step */
    void *raw;  /* scratch: the output of each microbatch, in its dtype */
    double *values;
};

/* Checks that the option is [SET/]OUTPUT:max, [SET/]OUTPUT:min or SET/loss. */
enum pst_status pstd_metric_check(const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the index of the set of --eval-data whose evaluations are compared: 0
 * unless the option names one. */
unsigned pstd_metric_set(const struct pstd_config *config,
                         const struct pstd_sets *sets);
/* True if evaluations are compared by an output, not by their loss. */
bool pstd_metric_is_output(const struct pstd_config *config);
/* True if the largest value of that output is the best one. */
bool pstd_metric_largest(const struct pstd_config *config);
/* Finds the output in an engine that keeps outputs; sets nothing without the
 * option. */
enum pst_status pstd_metric_open(struct pstd_eval_metric *metric,
                                 const struct pstd_config *config,
                                 const struct pstd_sets *sets,
                                 struct pst_plan *plan,
                                 const struct pst_engine *engine,
                                 unsigned microbatches,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, after a step of the evaluation: adds its values to `mean` on rank
 * 0. Elsewhere mean may be NULL. counts: this is rank 0. */
enum pst_status pstd_metric_add(struct pstd_eval_metric *metric,
                                struct pst_engine *engine, bool counts,
                                struct pst_mean *mean,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pstd_metric_close(struct pstd_eval_metric *metric);

#endif
