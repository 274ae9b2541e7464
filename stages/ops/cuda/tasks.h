// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_TASKS_H
#define PENSTOCK_STAGES_OPS_CUDA_TASKS_H
/* Functions of a step's tasks that are not operators (struct pst_task in
 * stages/device/device.h). They enqueue on task->stream. */
#include "stages/device/device.h"

void pst_cuda_seed(const struct pst_task *task);
void pst_cuda_copy_task(const struct pst_task *task);
void pst_cuda_sum(const struct pst_task *task);
void pst_cuda_sumsq(const struct pst_task *task);
void pst_cuda_downcast(const struct pst_task *task);
void pst_cuda_upcast(const struct pst_task *task);
void pst_cuda_update_adamw(const struct pst_task *task);
void pst_cuda_ema(const struct pst_task *task);
void pst_cuda_update_sgd(const struct pst_task *task);
void pst_cuda_update_adam(const struct pst_task *task);
void pst_cuda_update_adamax(const struct pst_task *task);
void pst_cuda_update_lion(const struct pst_task *task);
void pst_cuda_update_rmsprop(const struct pst_task *task);
void pst_cuda_update_adagrad(const struct pst_task *task);
void pst_cuda_update_adadelta(const struct pst_task *task);

#endif
