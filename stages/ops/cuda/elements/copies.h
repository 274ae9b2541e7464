// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_COPIES_H
#define PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_COPIES_H
/* Runs CPU kernels that only copy (PST_VIEW_IS_COPIES) on the GPU: each of
 * their copies is enqueued as one launch. */
#include "stages/ops/cuda/launch.h"

bool pst_cuda_is_copies(const struct pst_kernel *kernel);
/* Enqueues the copies of a kernel that only copies; frame->stream must be set.
 */
void pst_cuda_copies_run(const struct pst_kernel *kernel,
                         const struct pst_call *frame);

#endif
