// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
#define PENSTOCK_STAGES_RUN_RANK_RECORDINGS_H
/*
 * Spans: the instructions of an action that the device records (struct
 * pst_recorder). Kernels on the host, inputs, seeds and waits for other ranks
 * are between them. Addresses of an action are the same in all steps of a rank,
 * and so are all numbers of its kernels but the step's. Exec thread, or the
 * rank's own thread in a step.
 */
#include "stages/device/device.h"
#include "stages/layout/actions.h"
#include "stages/run/exec.h"

/* Adds the recordings of a bound action. Returns false if memory runs out. */
bool pst_recordings_bind(struct pst_rank_action *x,
                         struct pst_arena *heap) PST_MUST_CHECK;
/* Frees all recordings. */
void pst_recordings_free(const struct pst_actions *actions,
                         struct pst_device_memory *mem);
/* Sets the numbers of actions and nodes. */
void pst_recordings_count(const struct pst_actions *actions,
                          struct pst_recorded *ret);

#endif
