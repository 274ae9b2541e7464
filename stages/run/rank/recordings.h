// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
#define PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
/*
 * Recordings of a rank, on a device that has a recorder: instructions of
 * actions, list P of programs, squares of gradients, and updates. Kernels on
 * the host, inputs, seeds and waits for other ranks are between them. Addresses
 * are the same in all steps of a rank, except those of inputs that the caller
 * lends (lend.h): for other ones there is another recording, for the last
 * PST_RECORDED_SETS of them. All numbers but the step's are the same, too. Exec
 * thread, or the rank's own thread in a step.
 */
#include "stages/device/device.h"
#include "stages/layout/actions.h"
#include "stages/run/rank/step/step.h"

struct pst_layout;

/* Adds the recordings of a bound action. Returns false if memory runs out. */
bool pst_recordings_bind(struct pst_rank_action *x,
                         struct pst_arena *heap) PST_MUST_CHECK;
/* Sets those of a step. records: the device records. Returns false if memory
 * runs out. */
bool pst_recordings_init(struct pst_step *step, const struct pst_layout *layout,
                         unsigned n_stages, bool records,
                         struct pst_arena *heap) PST_MUST_CHECK;
/* Enqueues what `work` does, the same in each step with the same inputs: it is
 * called in the first step, recorded in the second and replayed from then on.
 * If the device cannot record it, it is called in each step. */
void pst_recording_run(struct pst_recording *of, struct pst_step *step,
                       struct pst_device_memory *mem, void (*work)(void *ctx),
                       void *ctx);
/* Forgets what was recorded: `work` does something else from now on. */
void pst_recording_forget(struct pst_recording *of,
                          struct pst_device_memory *mem);
/* Frees all recordings. */
void pst_recordings_free(const struct pst_actions *actions, unsigned n_stages,
                         struct pst_step *step, struct pst_device_memory *mem);
/* Returns what is recorded. */
void pst_recordings_count(const struct pst_actions *actions, unsigned n_stages,
                          const struct pst_step *step,
                          struct pst_recorded *ret);

#endif
