// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PLAN_H
#define PENSTOCK_STAGES_LAYOUT_PLAN_H
/*
 * Everything about a rank that is decided before memory is allocated: programs
 * of its stages, its actions with their slots, and the arena's layout. Exec
 * thread only.
 */
#include "stages/layout/channels.h"
#include "stages/layout/programs.h"

/* Constant once created, except the instructions and messages that actions get
 * when the rank starts. */
struct pst_rank_plan {
    struct pst_arena heap; /* has the tables of all members */
    struct pst_rank_role role;
    struct pst_programs *lent; /* owner of the programs; NULL: this plan */
    struct pst_layout layout;
    struct pst_actions actions;
    struct pst_channels channels; /* points to role, layout and heap */
};

/* Plans a rank in place; the result must not be moved. The role is copied.
 * lent: NULL, or programs that the plan borrows until it is released. The rank
 * can be started only if all its plans that borrow these programs have the same
 * fixed part (pst_layout_same_fixed). Release with pst_rank_plan_fini also on
 * failure. */
enum pst_status pst_rank_plan_init(struct pst_rank_plan *plan,
                                   const struct pst_rank_role *role,
                                   struct pst_programs *lent,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts {0}. */
void pst_rank_plan_fini(struct pst_rank_plan *plan);

#endif
