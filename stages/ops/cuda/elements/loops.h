// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_LOOPS_H
#define PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_LOOPS_H
/*
 * Elementwise operators. CPU kernels that run a loop of loops.def report by
 * pst_pw_describe which loop and which operands, and that loop runs on the GPU:
 * such operators need no row in this folder.
 */
#include "stages/ops/cuda/launch.h"
#include "stages/ops/pointwise/pointwise.h"

bool pst_cuda_is_loop(const struct pst_kernel *kernel);
/* Enqueues the loop of a kernel that runs one; frame->stream must be set. */
void pst_cuda_loop_run(const struct pst_kernel *kernel,
                       const struct pst_call *frame);
/* Returns operand k, a number, of an f32 loop, rounded as the loop wants it. */
float pst_cuda_loop_number(const struct pst_pw_use *use, unsigned k);

#endif
