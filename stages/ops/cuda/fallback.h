// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_FALLBACK_H
#define PENSTOCK_STAGES_OPS_CUDA_FALLBACK_H
/*
 * Runs calls without a kernel on the host: waits for COMPUTE, copies the
 * operands to the context's image, computes there, and copies the results back.
 * The image is a mirror of device memory in host memory, used for nothing else:
 * the host copy of struct pst_device_memory may be in use by messages and
 * checkpoints.
 */
#include "stages/ops/cuda/launch.h"

void pst_cuda_call_on_host(struct pst_cuda_context *c,
                           const struct pst_kernel *kernel,
                           struct pst_call *frame);
/* Maximum number of operands of a task that runs on the host. */
#define PST_CUDA_TASK_OPERANDS 4096

/* Runs a task on the host. Each of its operands has task->n contiguous elements
 * of task->dtype. */
void pst_cuda_task_on_host(const struct pst_task *task, pst_task_fn fn);

#endif
