// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_VJP_H
#define PENSTOCK_STAGES_OPS_CORE_VJP_H
/*
 * Helpers of gradient functions. All emitters return NULL for a NULL operand,
 * or if the builder has failed: a vjp emits its formula and checks once, at its
 * end: "return v->build.status" or pst_vjp_set.
 */
#include "stages/ops/core/op.h"

/* Returns the gradient of result i; NULL if none reaches it. */
static inline struct pst_value *pst_vjp_grad(const struct pst_vjp *v,
                                             unsigned i)
{
    return v->grads[i];
}
/* Returns the flat tensor index (index in call->in) of schema argument `arg`;
 * for a list of tensors, that of its first tensor. */
unsigned pst_vjp_flat(const struct pst_vjp *v, unsigned arg);
/* True if the gradient of schema argument `arg` (of its first tensor) is
 * wanted. */
bool pst_vjp_needs(const struct pst_vjp *v, unsigned arg);
/* Sets the gradient of a flat tensor index: shape and dtype must be the input's
 * (else PST_ERR_INTERNAL). NULL: none. Ignored if it is not wanted. Returns the
 * builder's status, so that the last call can be returned. */
enum pst_status pst_vjp_set(struct pst_vjp *v, unsigned flat,
                            struct pst_value *grad);

/* Emits an operator and returns its first result; use with PST_ARGS. */
struct pst_value *pst_vjp_emit(struct pst_vjp *v, const struct pst_op *op,
                               const struct pst_arg *args, unsigned n_args);

/* Emit an operator on two tensors, which broadcast (aten.add.Tensor ...). */
struct pst_value *pst_vjp_add(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b);
struct pst_value *pst_vjp_sub(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b);
struct pst_value *pst_vjp_mul(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b);
struct pst_value *pst_vjp_div(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b);
/* Emit an operator on a tensor and a number (aten.mul.Scalar, aten.add.Scalar,
 * aten.pow...). */
struct pst_value *pst_vjp_mul_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b);
struct pst_value *pst_vjp_add_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b);
struct pst_value *pst_vjp_div_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b);
struct pst_value *pst_vjp_pow_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b);
struct pst_value *pst_vjp_neg(struct pst_vjp *v, struct pst_value *a);
/* Converts a to dtype; emits nothing if it has that dtype already. */
struct pst_value *pst_vjp_cast(struct pst_vjp *v, struct pst_value *a,
                               enum pst_dtype dtype);
/* Emits cond ? a : b; a or b NULL means zero. */
struct pst_value *pst_vjp_where(struct pst_vjp *v, struct pst_value *cond,
                                struct pst_value *a, struct pst_value *b);

struct pst_value *pst_vjp_full(struct pst_vjp *v, const struct pst_meta *meta,
                               double value);
struct pst_value *pst_vjp_zeros_like(struct pst_vjp *v,
                                     const struct pst_value *like);

/* Emits aten.reshape, a view if strides allow, else a copy; nothing if the
 * sizes are equal. */
struct pst_value *pst_vjp_reshape(struct pst_vjp *v, struct pst_value *a,
                                  unsigned rank, const int64_t *sizes);
struct pst_value *pst_vjp_reshape_as(struct pst_vjp *v, struct pst_value *a,
                                     const struct pst_meta *like);
struct pst_value *pst_vjp_expand_as(struct pst_vjp *v, struct pst_value *a,
                                    const struct pst_meta *like);
struct pst_value *pst_vjp_unsqueeze(struct pst_vjp *v, struct pst_value *a,
                                    int64_t dim);
struct pst_value *pst_vjp_transpose(struct pst_vjp *v, struct pst_value *a,
                                    int64_t dim0, int64_t dim1);
struct pst_value *pst_vjp_permute(struct pst_vjp *v, struct pst_value *a,
                                  const int64_t *dims, unsigned n);
struct pst_value *pst_vjp_sum_dims(struct pst_vjp *v, struct pst_value *a,
                                   const int64_t *dims, unsigned n,
                                   bool keepdim);
/* Restores dimensions that a reduction without keepdim has removed, and
 * expands: the gradient of a sum over the dimensions `reduced` of a tensor like
 * `like`. */
struct pst_value *pst_vjp_unreduce(struct pst_vjp *v, struct pst_value *g,
                                   const struct pst_meta *like,
                                   const bool reduced[PST_MAX_RANK],
                                   bool keepdim);

#endif
