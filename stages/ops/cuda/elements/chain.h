// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_CHAIN_H
#define PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_CHAIN_H
/* Chains of elementwise nodes (stages/ops/pointwise/chain.h). */
#include "stages/ops/core/op.h"

/* The device's `joins`. */
bool pst_cuda_chain_joins(const struct pst_kernel *kernel,
                          const struct pst_call *call);

#endif
