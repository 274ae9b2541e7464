// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_UPDATE_H
/*
 * Updates of parameters and buffers by a step. The rank's own thread.
 */
#include "stages/base/arena.h"
#include "stages/run/rank/step/device.h"

struct pst_layout;
struct pst_rank_role;
struct pst_rank_signs;

/* Save the buffers that a step changes, before it; restore them if the step is
 * not applied. */
void pst_update_save(const struct pst_layout *layout,
                     struct pst_rank_device *d);
void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d);
/* Elements of parameters that an update skipped, since they or their states
 * would have become non-finite. */
struct pst_stayed {
    uint64_t n;     /* number of skipped elements */
    uint64_t step;  /* step of the update, counted from 1 */
    uint32_t param; /* index of the first parameter with such elements */
};

/* Slots in which the device keeps the numbers of a step's updates (struct
 * pst_task). All parameters with the same options and the same first update
 * share a slot. */
struct pst_update_slots {
    unsigned *of;  /* slots of the layout's parameters; 0: not updated */
    unsigned most; /* largest slot of the device */
};

/* Makes the slots. *ret_records: true if the updates can be recorded, with
 * numbers in slots. Returns false if memory runs out. */
bool pst_update_init(struct pst_update_slots *slots,
                     const struct pst_rank_role *role,
                     const struct pst_layout *layout, struct pst_arena *heap,
                     bool *ret_records) PST_MUST_CHECK;
/* Enqueues the numbers of a step's updates. *ret_moved: a parameter has another
 * slot than in the step before. Returns false if there are too few slots. */
bool pst_update_set_numbers(struct pst_update_slots *slots,
                            const struct pst_rank_role *role,
                            const struct pst_layout *layout,
                            struct pst_rank_device *d, const double *norms,
                            bool *ret_moved) PST_MUST_CHECK;
/* Enqueues the update of all parameters; each counts as progress, since updates
 * of large matrices take long (muon). norms: the norms by which gradients are
 * clipped (struct pst_decision). slots: the slots with the numbers; NULL: each
 * task has its own numbers. */
void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, const double *norms,
                      const struct pst_update_slots *slots,
                      struct pst_rank_signs *signs);
/* Returns the elements that the update of step `step` skipped. words: the two
 * numbers at layout->readback.stayed. */
struct pst_stayed pst_stayed_make(const uint64_t *words, uint64_t step);
/* Writes a sentence about skipped elements to text. rank: number in the job of
 * the rank that has the parameters. */
void pst_stayed_describe(const struct pst_stayed *stayed,
                         const struct pst_rank_role *role, unsigned rank,
                         char *text, size_t size);

#endif
