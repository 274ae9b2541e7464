// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PLAN_H
#define PENSTOCK_STAGES_LAYOUT_PLAN_H
/*
 * Everything about a rank that is decided before there is memory: programs of
 * its stages, its actions with their slots, and where everything will lie.
 * Exec thread only.
 */
#include "stages/layout/channels.h"
#include "stages/layout/programs.h"

/* Constant once it is made, but for what actions are given when the rank
 * starts: instructions and messages. */
struct pst_rank_plan {
    struct pst_arena heap; /* tables of all parts */
    struct pst_rank_role role;
    struct pst_programs *lent; /* owner of the programs, or NULL */
    struct pst_layout layout;
    struct pst_actions actions;
    struct pst_channels channels; /* points at role, layout and heap */
};

/* Plans a rank in place: it may not be moved afterwards. The role is copied.
 * lent: NULL, or programs that the plan borrows until it is released; a rank
 * cannot be started then. Release with pst_rank_plan_fini also on failure. */
enum pst_status pst_rank_plan_init(struct pst_rank_plan *plan,
                                   const struct pst_rank_role *role,
                                   struct pst_programs *lent,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Also of {0}. */
void pst_rank_plan_fini(struct pst_rank_plan *plan);

#endif
