// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_RESIDENCY_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_RESIDENCY_H
/*
 * Memory that buckets share over time. A rank keeps its own shard of what
 * replicas shard (bucket.h). A whole bucket is resident only while it is used:
 * its values from the start of the gather to the last kernel that reads them,
 * its gradients from the first kernel that writes them to the end of their
 * reduction. Buckets that are never resident at the same time share memory.
 *
 * This is planned before a step, from the kernels of each action and their
 * order. Values are gathered some uses ahead (the option unshard_window; 1:
 * when the kernels of the previous use begin), and the rank waits for a
 * reduction only before the second next use, so that communication overlaps
 * with kernels. Values that are used again soon stay resident. A stage's values
 * are gathered only between its unshard and reshard in the schedule.
 *
 * Created with the layout, allocated in the rank's heap, constant afterwards.
 * Exec thread.
 */
#include "stages/layout/memory/touches.h"

/* Sets the layout's events and the offsets of buckets. The programs must have
 * their lists. *ret_size: bytes of the shared memory; the offsets `data`,
 * `offset` and `incoming` of buckets are relative to its begin. */
enum pst_status pst_residency_make(struct pst_layout *layout,
                                   const struct pst_rank_role *role,
                                   struct pst_arena *heap, size_t *ret_size,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the *ret_n events of a compute action. */
const struct pst_residency_event *pst_residency_of(
    const struct pst_layout *layout, unsigned action, unsigned *ret_n);

#endif
