// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/kernels.h"

#include "stages/ops/core/order.h"

#define X(id) extern const struct pst_kernels pst_cuda_kernels_##id;
#include "stages/ops/cuda/rows.def"
#undef X

const struct pst_kernels *const pst_cuda_kernels[PST_N_KERNEL_OPS] = {
#define X(id) [PST_AT_##id] = &pst_cuda_kernels_##id,
#include "stages/ops/cuda/rows.def"
#undef X
};
