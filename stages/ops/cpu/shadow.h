// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SHADOW_H
#define PENSTOCK_STAGES_OPS_CPU_SHADOW_H
/*
 * "shadow", a device for tests: the kernels of cpu on memory that the host
 * cannot touch, done late (lag.h). Its addresses lead nowhere: whoever reads or
 * writes them otherwise than by a kernel or copy of the device gets SIGSEGV, or
 * EFAULT of the kernel. A run that comes to its end has not touched any.
 * PENSTOCK_SHADOW_LAG=SEED[:N] draws another order; the N-th piece of work
 * fails.
 *
 * In builds with tests. PENSTOCK_DEVICE=shadow in the environment makes it the
 * device of all engines that name none. When memory is given back it adds a
 * line to the file PENSTOCK_SHADOW: what it has done so far.
 */
#include "stages/device/device.h"

extern const struct pst_device pst_device_shadow;

/* Of this process since its start. */
struct pst_shadow_counts {
    uint64_t launches, tasks, copies_in, copies_out, copies;
};
struct pst_shadow_counts pst_shadow_counts(void);

/* Is it asked for by the environment? */
bool pst_shadow_wanted(void);

#endif
