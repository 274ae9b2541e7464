// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_ESTIMATE_H
#define PENSTOCK_STAGES_TUNE_ESTIMATE_H
/*
 * Costs of a plan without running it. Any thread, one at a time.
 */
#include "stages/cost/cost.h"
#include "stages/layout/options.h"
#include "stages/sched/costs.h"

/*
 * Estimates the seconds of each node (stages/cost/cost.h) at the options'
 * rates, or reads times from the file that the options name; links and bytes
 * are exact, stash and keep are those of a memory plan without fragmentation.
 * Fills ret; release with pst_costs_fini.
 */
enum pst_status pst_plan_costs(const struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_costs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* ret[stage]: seconds of one microbatch, forward and backward; without --costs
 * estimated from the forward graph alone, which needs no joint graph. */
enum pst_status pst_plan_seconds(const struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 double *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the setup for costs of an engine with these options (threads not 0).
 */
struct pst_cost_setup pst_exec_setup(const struct pst_exec_options *options);
struct pst_seconds pst_seconds_of(double seconds, enum pst_phase phase);

/*
 * Replaces estimated times by measured ones: those of the stages if they were
 * measured with this plan, else those of the modules: each stage gets the
 * estimated share of a module's time, and what was not measured is scaled like
 * the rest. PST_ERR_MISMATCH if the plan has none of the modules.
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
