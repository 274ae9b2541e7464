// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
/*
 * Updates of parameters and buffers by a step. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"

struct pst_layout;
struct pst_rank_role;

/* Save the buffers that a step changes, before it; restore them if the step is
 * not applied. */
void pst_update_keep(const struct pst_layout *layout,
                     struct pst_rank_device *d);
void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d);
/* Elements of parameters that an update skipped, since they or their states
 * would have become non-finite. */
struct pst_stayed {
    uint64_t n;
    uint64_t step;  /* number of the update, from 1 */
    uint32_t param; /* that has the first of them */
};

/* Runs the optimizer; norm: of all gradients, if they are clipped. */
void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, double norm);
/* words: layout->readback.stayed, as written by the update `step`. */
struct pst_stayed pst_stayed_make(const uint64_t *words, uint64_t step);
/* rank: the rank that has these parameters. */
void pst_stayed_describe(const struct pst_stayed *stayed,
                         const struct pst_rank_role *role, unsigned rank,
                         char *text, size_t size);

#endif
