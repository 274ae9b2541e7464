// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_RESIDENCY_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_RESIDENCY_H
/*
 * Memory that buckets have in turn. Of what replicas share, a rank keeps its
 * own part (bucket.h). The whole of a bucket is there while it is used: its
 * values from the moment that they are asked for to the last kernel that reads
 * them, its gradients from the first kernel that writes them to the moment that
 * they are summed. Buckets that are never there at the same time have the same
 * memory.
 *
 * All of that is known before a step: which kernels an action runs, and in
 * which order. Values are asked for some uses ahead (the option
 * unshard_window; 1: when the kernels of the use before begin), sums are waited
 * for one use later, so that messages travel beside the kernels. Values that
 * are used again soon stay. Nothing is asked for before the schedule unshards
 * the stage, or left when it is resharded.
 *
 * Made with the layout, in memory of the rank's heap, constant afterwards. Exec
 * thread.
 */
#include "stages/layout/memory/touches.h"

/* Of programs that have their lists; *ret_size: bytes of the memory, from which
 * data, offset and incoming of buckets count now. */
enum pst_status pst_residency_make(struct pst_layout *layout,
                                   const struct pst_rank_role *role,
                                   struct pst_arena *heap, size_t *ret_size,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Events of a compute action: *ret_n of them. */
const struct pst_residency_event *pst_residency_of(
    const struct pst_layout *layout, unsigned action, unsigned *ret_n);

/*
 * Proves that the events fit the rank's actions: every kernel finds what it
 * reads, nothing is gathered twice, nothing is left when a stage is resharded
 * or the step ends. The message names rank, action, kernel and group.
 */
enum pst_status pst_residency_check(const struct pst_layout *layout,
                                    struct pst_toucher *toucher,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
