// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_COPIES_H
#define PENSTOCK_STAGES_OPS_CUDA_COPIES_H
/* Kernels of cpu that only copy (PST_VIEW_IS_COPIES): their copies are enqueued
 * here, one launch each. */
#include "stages/ops/cuda/launch.h"

bool pst_cuda_is_copies(const struct pst_kernel *kernel);
/* frame->stream is set. */
void pst_cuda_copies_run(const struct pst_kernel *kernel,
                         const struct pst_call *frame);

#endif
