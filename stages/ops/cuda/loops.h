// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_LOOPS_H
#define PENSTOCK_STAGES_OPS_CUDA_LOOPS_H
/*
 * Elementwise operators. Those of the CPU's kernels that run a loop of
 * loops.def say which loop and which operands (pst_pw_describe), and the loop
 * runs on the GPU: it needs no row of its own here.
 */
#include "stages/ops/cuda/launch.h"

bool pst_cuda_is_loop(const struct pst_kernel *kernel);
/* Enqueues such a kernel; frame->stream is set. */
void pst_cuda_loop_run(const struct pst_kernel *kernel,
                       const struct pst_call *frame);

#endif
