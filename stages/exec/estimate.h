// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_EXEC_ESTIMATE_H
#define PENSTOCK_STAGES_EXEC_ESTIMATE_H
/*
 * Costs of a plan without running it. Any thread, one at a time.
 */
#include "stages/exec/exec.h"
#include "stages/sched/costs.h"

/*
 * Seconds from operations and bytes of memory that each node touches, at the
 * rates of a common server core; links and bytes are exact, stash and keep
 * those of a memory plan without slack. Fills ret; release with
 * pst_costs_fini.
 */
enum pst_status pst_plan_costs(const struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_costs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
