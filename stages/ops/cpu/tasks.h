// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_TASKS_H
#define PENSTOCK_STAGES_OPS_CPU_TASKS_H
/* What steps do besides operators, on this processor: rows of
 * stages/device/device.h. Any thread. */
#include "stages/device/device.h"

void pst_cpu_seed(const struct pst_task *task);
void pst_cpu_copy(const struct pst_task *task);
void pst_cpu_sum(const struct pst_task *task);
void pst_cpu_sumsq(const struct pst_task *task);
void pst_cpu_update_sgd(const struct pst_task *task);
void pst_cpu_update_adamw(const struct pst_task *task);

/* Elements go to threads in multiples of this, so that loops see the same
 * vector bodies and tails for any number of threads. 16 KiB of f32. */
#define PST_TASK_GRAIN 4096

#endif
