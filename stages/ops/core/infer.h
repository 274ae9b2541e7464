// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_INFER_H
#define PENSTOCK_STAGES_OPS_CORE_INFER_H
/*
 * Helpers of inference functions: dtype promotion, broadcasting, checks of
 * arguments, views. Every function that can fail writes one sentence, beginning
 * with the operator's name, into c->diag.
 */
#include "stages/ops/core/op.h"

/* Reports "OPERATOR: text" as PST_ERR_SHAPE. */
enum pst_status pst_infer_fail(const struct pst_infer *c, const char *fmt, ...)
    PST_PRINTF(2, 3);
/* Reports "OPERATOR: text" as PST_ERR_UNSUPPORTED, for calls that PyTorch
 * supports and we do not. */
enum pst_status pst_infer_refuse(const struct pst_infer *c, const char *fmt,
                                 ...) PST_PRINTF(2, 3);

/*
 * Returns PyTorch's result type of mixed operands. There are three classes:
 * tensors with dimensions, 0-dim tensors, numbers; a lower class only counts if
 * its category (bool < integer < floating) is higher. A number is i64, f32 or
 * bool.
 *
 * Considers the tensors and numbers of args[0..n-1]; f32 if there are none.
 * Kernels may call it on call->args too.
 */
enum pst_dtype pst_result_type(const struct pst_arg *args, unsigned n);
/* Returns f32 for bool and integers, else the dtype itself. */
enum pst_dtype pst_float_type(enum pst_dtype dtype);

/* Returns the meta of tensor argument i in *ret; fails if it is None. */
enum pst_status pst_infer_tensor(const struct pst_infer *c, unsigned i,
                                 const struct pst_meta **ret) PST_MUST_CHECK;
/* Resolves argument i as a dimension (-rank..rank-1) of meta to 0..rank-1. */
enum pst_status pst_infer_dim(const struct pst_infer *c, unsigned i,
                              const struct pst_meta *meta,
                              unsigned *ret) PST_MUST_CHECK;
/* Resolves `dim`, a dimension of meta (-rank..rank-1), to 0..rank-1. */
enum pst_status pst_infer_dim_at(const struct pst_infer *c, int64_t dim,
                                 const struct pst_meta *meta,
                                 unsigned *ret) PST_MUST_CHECK;
/* Resolves argument i (int[], int[]?) to a set of dimensions of meta; None or
 * an empty list sets all. Repeated dimensions fail. */
enum pst_status pst_infer_dims(const struct pst_infer *c, unsigned i,
                               const struct pst_meta *meta,
                               bool ret[PST_MAX_RANK]) PST_MUST_CHECK;
/* Returns dtype argument i; `otherwise` if it is None. */
enum pst_dtype pst_infer_dtype(const struct pst_infer *c, unsigned i,
                               enum pst_dtype otherwise);
/* Fails unless both tensor arguments have the same dtype. */
enum pst_status pst_infer_same_dtype(const struct pst_infer *c, unsigned i,
                                     unsigned j) PST_MUST_CHECK;

/* Sets result k to a contiguous tensor, checked (sizes >= 0, no overflow). */
enum pst_status pst_infer_set(struct pst_infer *c, unsigned k,
                              enum pst_dtype dtype, unsigned rank,
                              const int64_t *sizes) PST_MUST_CHECK;
/* Sets result k to meta's sizes, contiguous, with dtype. */
enum pst_status pst_infer_set_like(struct pst_infer *c, unsigned k,
                                   enum pst_dtype dtype,
                                   const struct pst_meta *meta) PST_MUST_CHECK;
/* Sets result k to a view of tensor argument i with meta's sizes and strides,
 * whose first element is `offset` elements after the argument's. */
enum pst_status pst_infer_view(struct pst_infer *c, unsigned k, unsigned i,
                               const struct pst_meta *meta,
                               int64_t offset) PST_MUST_CHECK;

/* Sets result k to the broadcast of tensor arguments first..first+n-1,
 * contiguous, with dtype. None is skipped; all tensors of a list count. */
enum pst_status pst_infer_broadcast(struct pst_infer *c, unsigned k,
                                    unsigned first, unsigned n,
                                    enum pst_dtype dtype) PST_MUST_CHECK;

/* Complete inference functions (pst_infer_same_as_0 is in op.h). */

/* Infers the shape and dtype of argument 1 (gradients of argument 1). */
enum pst_status pst_infer_same_as_1(struct pst_infer *c);

/* Infer the shape to which arguments 0 and 1 (tensors or numbers) broadcast.
 * The dtypes of the three: the promoted one; the promoted one with f32 in place
 * of integers (div); bool (comparisons). */
enum pst_status pst_infer_binary(struct pst_infer *c);
enum pst_status pst_infer_binary_float(struct pst_infer *c);
enum pst_status pst_infer_compare(struct pst_infer *c);
/* Infers the shape of argument 0; integers become f32 (exp, sqrt). */
enum pst_status pst_infer_unary_float(struct pst_infer *c);
/* Infers the shape of argument 0 and bool (isnan, logical_not). */
enum pst_status pst_infer_unary_bool(struct pst_infer *c);

#endif
