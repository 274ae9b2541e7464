// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_SPILL_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_SPILL_H
/*
 * Which slots of the stash are out of the arena while (--stash): the schedule
 * says when each microbatch of a stage is used next, so it is decided before
 * there is memory, and proven. A pool keeps as many slots as asked for; where
 * more microbatches are in flight, those whose next use is farthest are copied
 * out behind the action that has used them, and back before the action that
 * uses them next.
 *
 * Copies are one queue of a rank. Times are ordinals of the rank's actions that
 * compute (F, B, I, W), from 0 on. Memory of the layout. Exec thread only.
 */
#include "stages/layout/layout.h"

/* Pools of what one stage keeps for itself from F, or from I, to a backward. */
bool pst_spill_is_for(const struct pst_rank_role *role,
                      const struct pst_slot_pool *pool, unsigned region);

/* Decides for one pool: its number of slots, its copies (not in their order
 * yet). slot_at: the slot by ordinal, -1 where the pool is not used; of the
 * rank's heap. */
enum pst_status pst_spill_pool(const struct pst_rank_role *role,
                               struct pst_layout *layout,
                               const struct pst_actions *actions,
                               unsigned stage, unsigned region,
                               struct pst_arena *heap, int **ret_slot_at,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Puts copies of all pools in their order, finds their places outside, and
 * tells each action what it waits for and what may begin behind it. */
enum pst_status pst_spill_order(const struct pst_rank_role *role,
                                struct pst_layout *layout,
                                struct pst_actions *actions,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Plays actions and copies, as late and as early as they may run: each action
 * finds its microbatch in its slot, and no copy meets an action in one slot.
 * PST_ERR_INTERNAL: names what does not. */
enum pst_status pst_spill_check(const struct pst_rank_role *role,
                                const struct pst_layout *layout,
                                const struct pst_actions *actions,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
