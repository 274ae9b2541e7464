// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
/*
 * What a step changes of parameters and buffers. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"

struct pst_layout;
struct pst_rank_role;

/* Copies the buffers that a step changes, before it; and has them as they were
 * then, if it is not applied. */
void pst_update_keep(const struct pst_layout *layout,
                     struct pst_rank_device *d);
void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d);
/* Elements of parameters that an update left as they were, since they or their
 * states would not be finite. */
struct pst_stayed {
    uint64_t n;
    uint64_t step;  /* of the update, counted from 1 */
    uint32_t param; /* that has the first one */
};

/* The optimizer; norm: of all gradients, if they are clipped. */
void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, double norm);
/* words: what the update `step` has left in layout->readback.stayed. */
struct pst_stayed pst_stayed_make(const uint64_t *words, uint64_t step);
/* rank: whose parameters these are. */
void pst_stayed_describe(const struct pst_stayed *stayed,
                         const struct pst_rank_role *role, unsigned rank,
                         char *text, size_t size);

#endif
