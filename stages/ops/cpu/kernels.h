// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_KERNELS_H
#define PENSTOCK_STAGES_OPS_CPU_KERNELS_H
/* CPU kernels of all operators. The source of a family defines the kernels
 * beside the row, with PST_CPU_KERNELS. */
#include "stages/device/device.h"

/* Indexed by enum pst_op_order; no entry is NULL. */
extern const struct pst_kernels *const pst_cpu_kernels[];

#endif
