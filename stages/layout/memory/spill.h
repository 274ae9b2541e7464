// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_SPILL_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_SPILL_H
/*
 * Plans which microbatches of the stash are outside of the arena, and when
 * (--stash): the schedule determines the next use of each microbatch, so this
 * is decided before memory is allocated. A pool has as many slots as requested;
 * if more microbatches are in flight, those with the farthest next use are
 * evicted after the action that has used them, and reloaded before the action
 * that uses them next.
 *
 * All copies of a rank are in one queue. Times are indices into the rank's
 * compute actions (F, B, I, W), from 0. Allocated with the layout. Exec thread
 * only.
 */
#include "stages/layout/layout.h"

/* True for a pool that may be moved out of the arena: in training with --stash,
 * values that F keeps for the backward actions of its stage, or I for W. False
 * for values that are sent between stages. */
bool pst_spill_is_for(const struct pst_rank_role *role,
                      const struct pst_slot_pool *pool, unsigned region);

/* Plans one pool: its number of slots and its copies (not ordered yet).
 * slot_at: the slot by compute action, -1 where the pool is not used; in the
 * rank's heap. */
enum pst_status pst_spill_pool(const struct pst_rank_role *role,
                               struct pst_layout *layout,
                               const struct pst_actions *actions,
                               unsigned stage, unsigned region,
                               struct pst_arena *heap, int **ret_slot_at,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Orders the copies of all pools, assigns their locations outside of the arena,
 * and sets for each action which copies it waits for and which may begin after
 * it. */
enum pst_status pst_spill_order(const struct pst_rank_role *role,
                                struct pst_layout *layout,
                                struct pst_actions *actions,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
