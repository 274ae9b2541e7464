// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SHADOW_H
#define PENSTOCK_STAGES_OPS_CPU_SHADOW_H
/*
 * "shadow", a device for tests: the kernels of cpu on memory that the host
 * cannot access, run late (lag.h). Its addresses are not mapped: any access
 * other than by a kernel or copy of the device gives SIGSEGV, or EFAULT in a
 * system call. A run that completes has therefore made none.
 * PENSTOCK_SHADOW_LAG=SEED[:N] selects another order; the N-th piece of work
 * fails.
 *
 * Only in builds with tests. PENSTOCK_DEVICE=shadow in the environment makes it
 * the device of all engines that name none. When memory is freed, it appends
 * its counts to the file PENSTOCK_SHADOW.
 */
#include "stages/device/device.h"

extern const struct pst_device pst_device_shadow;

/* Calls of this process since its start, on all memories. */
struct pst_shadow_counts {
    uint64_t launches, tasks, copies_in, copies_out, copies;
};
struct pst_shadow_counts pst_shadow_counts(void);

#endif
