// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/kernels.h"

#include "stages/ops/core/order.h"

/* Linking fails for an operator of ops.def that lacks PST_CPU_KERNELS. */
#define PST_OP(id) extern const struct pst_kernels pst_cpu_kernels_##id;
#define PST_OP_NO_KERNEL(id)
#include "stages/ops/core/ops.def"

const struct pst_kernels *const pst_cpu_kernels[PST_N_KERNEL_OPS] = {
#define PST_OP(id) [PST_AT_##id] = &pst_cpu_kernels_##id,
#define PST_OP_NO_KERNEL(id)
#include "stages/ops/core/ops.def"
};
