// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_ESTIMATE_H
#define PENSTOCK_STAGES_TUNE_ESTIMATE_H
/*
 * Estimates the costs of a plan without running it. Any thread, one at a time.
 */
#include "stages/cost/cost.h"
#include "stages/layout/options.h"
#include "stages/sched/costs.h"

/*
 * Sets *ret to the costs of a plan; release with pst_costs_fini. Seconds are
 * estimated for each node (stages/cost/cost.h) at the options' rates, or read
 * from the file options.costs. Links and bytes are exact; stash and keep are
 * those of a memory plan without fragmentation.
 */
enum pst_status pst_plan_costs(const struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_costs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Sets ret[stage] to the seconds of forward and backward of one microbatch.
 * Without options.costs they are estimated from the forward graph alone, which
 * needs no joint graph. */
enum pst_status pst_plan_seconds(const struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 double *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the machine on which an engine with these options runs, for
 * stages/cost/cost.h. options.threads must not be 0. */
struct pst_cost_setup pst_exec_setup(const struct pst_exec_options *options);
/* Returns a struct with `seconds` for that phase and 0 for the others. */
struct pst_seconds pst_seconds_of(double seconds, enum pst_phase phase);

/*
 * Replaces estimated times in `costs` by measured ones. If these were measured
 * with this plan, each stage gets its own times. Else each stage gets the share
 * of its modules' times that the estimates give it; estimates of modules
 * without a measured time are scaled like the others. PST_ERR_MISMATCH if the
 * plan has none of the measured modules.
 */
enum pst_status pst_costs_apply(const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                const struct pst_costs *measured,
                                struct pst_costs *costs,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Fills costs->modules: divides the time of each stage between its modules in
 * proportion to the estimates, so that a file of costs also serves other cuts.
 */
enum pst_status pst_costs_add_modules(const struct pst_plan *plan,
                                      const struct pst_exec_options *options,
                                      struct pst_costs *costs,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
