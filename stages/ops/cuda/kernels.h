// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_KERNELS_H
#define PENSTOCK_STAGES_OPS_CUDA_KERNELS_H
/* Kernels of the device "cuda", by operator. The files of this folder define
 * them with PST_CUDA_KERNELS; rows.def lists the operators. */
#include "stages/ops/cuda/launch.h"

/* Indexed by enum pst_op_order; NULL: the operator runs on the host. */
extern const struct pst_kernels *pst_cuda_kernels[];

/* Defines the kernels of an operator, best first. Calls that none of them
 * supports run on the host. */
#define PST_CUDA_KERNELS(id, array)                                            \
    const struct pst_kernels pst_cuda_kernels_##id = {                         \
        (array), (unsigned)PST_COUNT(array)}

#endif
