// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_MEASURE_H
#define PENSTOCK_STAGES_RUN_MEASURE_H
/*
 * Measured times of an engine's last steps, on the clock of rank 0. The
 * executor records the times of each action of the last steps
 * (rank/step/ring.h); these functions collect them after a step. Exec thread
 * only.
 */
#include "stages/run/exec.h"
#include "stages/sched/costs.h"
#include "stages/sched/timeline.h"

/*
 * COLLECTIVE. Sets *ret, on rank 0, to the timeline of a step over all ranks of
 * the job, with explanations: the step of median length among the last ones.
 * Release it with pst_timeline_fini. *ret is empty on other ranks, and if no
 * step has been run.
 */
enum pst_status pst_engine_timeline(struct pst_engine *engine,
                                    struct pst_timeline *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/*
 * COLLECTIVE. Sets *ret, on rank 0, to the costs of the plan, with measured
 * times instead of estimates where they exist: for stages, optimizer,
 * reductions and the wire between ranks 0 and 1. If only B was run, its time is
 * divided between I and W in the proportion of their estimates. Release with
 * pst_costs_fini (everywhere).
 */
enum pst_status pst_engine_costs(struct pst_engine *engine,
                                 struct pst_costs *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
