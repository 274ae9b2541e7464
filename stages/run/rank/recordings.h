// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
#define PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
/*
 * Recordings of a rank, on a device that has a recorder: of instructions of
 * actions, list P of programs, squares of gradients, and updates. Kernels on
 * the host, inputs, seeds and waits for other ranks run between recordings.
 * Addresses and numbers are the same in all steps of a rank, except the step's
 * number and the addresses of inputs that the caller lends (lend.h). There is a
 * recording for each of the last PST_RECORDED_SETS sets of such addresses. Exec
 * thread, or the rank's own thread in a step.
 */
#include "stages/device/device.h"
#include "stages/layout/actions.h"
#include "stages/run/rank/step/step.h"

struct pst_layout;

/* Adds the recordings of a bound action. Returns false if memory runs out. */
bool pst_recordings_bind(struct pst_rank_action *x,
                         struct pst_arena *heap) PST_MUST_CHECK;
/* Creates the recordings of a step that belong to no action. records: the
 * device records. Returns false if memory runs out. */
bool pst_recordings_init(struct pst_step *step, const struct pst_layout *layout,
                         unsigned n_stages, bool records,
                         struct pst_arena *heap) PST_MUST_CHECK;
/* Runs `work`, which enqueues the same work in each step with the same lent
 * inputs. The first step calls it, the second one records it, later ones replay
 * the recording. If the device cannot record it, each step calls it. */
void pst_recording_run(struct pst_recording *of, struct pst_step *step,
                       struct pst_device_memory *mem, void (*work)(void *ctx),
                       void *ctx);
/* Frees what was recorded: call this before `work` changes. */
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
