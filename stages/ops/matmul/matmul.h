// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_MATMUL_H
#define PENSTOCK_STAGES_OPS_MATMUL_MATMUL_H
/* What the product operators share besides the product itself. */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/matmul/product.h"
#include "stages/ops/pointwise/pointwise.h"

/* Arguments first..first+n-1 are floating tensors of one dtype; ret[i] their
 * metas. */
enum pst_status pst_matmul_operands(const struct pst_infer *c, unsigned first,
                                    unsigned n, const struct pst_meta **ret);
/* Result 0 := size[0..rank-1]; the argument `added` must broadcast to it. */
enum pst_status pst_matmul_set_added(struct pst_infer *c, unsigned added,
                                     enum pst_dtype dtype, unsigned rank,
                                     const int64_t *size);
/* p->c := operand x broadcast to out, whose last two dimensions are m, n and
 * whose others are the batch. */
void pst_matmul_add(struct pst_product *p, const struct pst_operand *x,
                    const struct pst_meta *out);
/* 2 k floating-point operations for each element of the result. */
double pst_matmul_flops(const struct pst_node *node, unsigned first);

/* a x b (aten.matmul, any ranks). */
struct pst_value *pst_matmul_emit(struct pst_vjp *v, struct pst_value *a,
                                  struct pst_value *b);
/* The last two dimensions exchanged. */
struct pst_value *pst_matmul_t(struct pst_vjp *v, struct pst_value *a);
/* All dimensions but the last as one. */
struct pst_value *pst_matmul_2d(struct pst_vjp *v, struct pst_value *a);
/* da = alpha g b^T, db = alpha a^T g for the equally batched matrices at
 * arguments first, first + 1. */
enum pst_status pst_matmul_vjp(struct pst_vjp *v, unsigned first, double alpha);
/* Gradient of the operand that was added: beta * g summed to its shape. */
enum pst_status pst_matmul_added_vjp(struct pst_vjp *v, unsigned added,
                                     double beta);

#endif
