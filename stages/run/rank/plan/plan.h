// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_PLAN_PLAN_H
#define PENSTOCK_STAGES_RUN_RANK_PLAN_PLAN_H
/*
 * Everything about a rank that is decided before there is memory: programs of
 * its stages, its actions with their slots, and where everything will lie.
 * Exec thread only.
 */
#include "stages/run/rank/plan/channels.h"
#include "stages/run/rank/plan/programs.h"

/* The parts are zeros before, and released by their owner also on failure.
 * They borrow role and heap. lent: NULL, or programs that they borrow. */
enum pst_status pst_rank_plan(const struct pst_rank_role *role,
                              struct pst_programs *lent,
                              struct pst_layout *layout,
                              struct pst_actions *actions,
                              struct pst_channels *channels,
                              struct pst_arena *heap,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
