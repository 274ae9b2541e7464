// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_MATMUL_PRODUCT_H
#define PENSTOCK_STAGES_OPS_CUDA_MATMUL_PRODUCT_H
/* Matmuls by cuBLASLt, for matmul.c. */
#include "stages/ops/core/op.h"
#include "stages/ops/matmul/product.h"

/* Bytes of scratch that the library may use. They are part of a plan on every
 * host, since a plan may be made where the library is not installed. */
size_t pst_cuda_library_scratch(const struct pst_product *p);
/* Enqueues the matmul. Returns false, with nothing enqueued, if the context has
 * no library or the library does not compute this matmul: f64, operands without
 * adjacent elements, c and `accumulate` together, too many calls. */
bool pst_cuda_library_multiply(const struct pst_call *c,
                               const struct pst_product *p);

#endif
