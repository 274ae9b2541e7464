// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_MATMUL_H
#define PENSTOCK_STAGES_OPS_MATMUL_MATMUL_H
/* Helpers shared by the matmul operators. */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/matmul/product.h"
#include "stages/ops/pointwise/pointwise.h"

/* Checks that arguments first..first+n-1 are floating tensors of one dtype;
 * ret[i] are their metas. */
enum pst_status pst_matmul_operands(const struct pst_infer *c, unsigned first,
                                    unsigned n, const struct pst_meta **ret);
/* Sets result 0 to a tensor of size[0..rank-1]; the argument with index `added`
 * must broadcast to it. */
enum pst_status pst_matmul_set_added(struct pst_infer *c, unsigned added,
                                     enum pst_dtype dtype, unsigned rank,
                                     const int64_t *size);
/* Completes the description of alpha a b by `beta self` for a call with
 * arguments (self, a, b, beta, alpha): self is broadcast to the result, whose
 * last two dimensions are m and n and whose others are the batch. */
void pst_matmul_add(const struct pst_call *c, struct pst_product *p);
/* Returns 2 k floating-point operations per element of the result. */
double pst_matmul_flops(const struct pst_node *node, unsigned first);

/* Emits a times b (aten.matmul, any ranks). */
struct pst_value *pst_matmul_emit(struct pst_vjp *v, struct pst_value *a,
                                  struct pst_value *b);
/* Exchanges the last two dimensions. */
struct pst_value *pst_matmul_t(struct pst_vjp *v, struct pst_value *a);
/* Flattens all dimensions except the last. */
struct pst_value *pst_matmul_2d(struct pst_vjp *v, struct pst_value *a);
/* Sets da = alpha g b^T and db = alpha a^T g for matrices with equal batches at
 * arguments first, first + 1. */
enum pst_status pst_matmul_vjp(struct pst_vjp *v, unsigned first, double alpha);
/* Sets the gradient of the added operand: beta * g summed to its shape. */
enum pst_status pst_matmul_added_vjp(struct pst_vjp *v, unsigned added,
                                     double beta);

/* Gradients of mm and bmm, and of addmm and baddbmm, whose arguments are those
 * of pst_matmul_add. */
enum pst_status pst_mm_vjp(struct pst_vjp *v);
enum pst_status pst_addmm_vjp(struct pst_vjp *v);
double pst_addmm_flops(const struct pst_node *node);

#endif
