// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_WIDENED_H
#define PENSTOCK_STAGES_OPS_WIDENED_H
/*
 * bf16 and f16 through the fast kernels of f32: operands are converted into
 * scratch, the kernel of f32 runs, results are rounded once. Taken where an
 * operator has nothing but its reference for the narrow format.
 */
#include "stages/ops/op.h"

/* The adapter, with call->inner set to the best kernel of f32, or NULL if that
 * would be the reference, too. */
const struct pst_kernel *pst_kernel_widened(const struct pst_kernels *kernels,
                                            struct pst_call *call,
                                            enum pst_isa isa);

#endif
