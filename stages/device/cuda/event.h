// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_EVENT_H
#define PENSTOCK_STAGES_DEVICE_CUDA_EVENT_H
/* Opens and closes the events of a context; cuda.h declares their other
 * functions. */
#include "stages/device/cuda/cuda.h"

enum pst_status pst_cuda_events_open(struct pst_cuda_context *c,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Also accepts a context whose opening has failed. */
void pst_cuda_events_close(struct pst_cuda_context *c);

#endif
