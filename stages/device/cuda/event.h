// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_EVENT_H
#define PENSTOCK_STAGES_DEVICE_CUDA_EVENT_H
/* Opening and closing of a context's events (cuda.h has the rest). */
#include "stages/device/cuda/cuda.h"

enum pst_status pst_cuda_events_open(struct pst_cuda_context *c,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts a context whose opening has failed. */
void pst_cuda_events_close(struct pst_cuda_context *c);

#endif
