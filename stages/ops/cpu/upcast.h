// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_UPCAST_H
#define PENSTOCK_STAGES_OPS_CPU_UPCAST_H
/*
 * Runs the fast kernels of f32 on bf16 and f16: converts the operands to f32 in
 * scratch, runs the kernel, rounds each result once. Used where an operator has
 * nothing but its reference for 16-bit dtypes.
 */
#include "stages/ops/core/op.h"

/* The adapter, with call->inner set to the best kernel of f32; NULL if that
 * would be the reference too. `adapt` of the device "cpu". */
const struct pst_kernel *pst_cpu_adapt(const struct pst_kernels *kernels,
                                       struct pst_call *call, enum pst_isa isa);

#endif
