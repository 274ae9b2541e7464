// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_UPCAST_H
#define PENSTOCK_STAGES_OPS_CPU_UPCAST_H
/*
 * Runs the fast f32 kernels on bf16 and f16: converts the operands to f32 in
 * scratch, runs the kernel, rounds each result once. Used if an operator only
 * has its reference for 16-bit dtypes.
 */
#include "stages/ops/core/op.h"

/* Returns the adapter, with call->owner set to the best f32 kernel; NULL if
 * that is the reference too. It is `adapt` of device "cpu". */
const struct pst_kernel *pst_cpu_adapt(const struct pst_kernels *kernels,
                                       struct pst_call *call, enum pst_isa isa);

#endif
