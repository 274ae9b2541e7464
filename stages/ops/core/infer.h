// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_INFER_H
#define PENSTOCK_STAGES_OPS_CORE_INFER_H
/*
 * What inference functions share: promotion of dtypes, broadcasting, checks of
 * arguments, views. Every function that can fail writes one sentence into
 * c->diag that begins with the operator's name.
 */
#include "stages/ops/core/op.h"

/* "OPERATOR: text", PST_ERR_SHAPE. */
enum pst_status pst_infer_fail(const struct pst_infer *c, const char *fmt, ...)
    PST_PRINTF(2, 3);
/* The same with PST_ERR_UNSUPPORTED, for what PyTorch can and we cannot. */
enum pst_status pst_infer_refuse(const struct pst_infer *c, const char *fmt,
                                 ...) PST_PRINTF(2, 3);

/*
 * PyTorch's result type of a mix of operands. Three standings: tensors with
 * dimensions, 0-dim tensors, numbers; a lower standing counts only if its
 * category (bool < integer < floating) is higher. A number is i64, f32, bool.
 *
 * Of args[0..n-1] that are tensors or numbers; f32 if there are none. Kernels
 * may call it on call->args too.
 */
enum pst_dtype pst_result_type(const struct pst_arg *args, unsigned n);
/* f32 for bool and integers, else the dtype itself. */
enum pst_dtype pst_float_type(enum pst_dtype dtype);

/* Meta of tensor argument i in *ret, or a failure if it is None. */
enum pst_status pst_infer_tensor(const struct pst_infer *c, unsigned i,
                                 const struct pst_meta **ret) PST_MUST_CHECK;
/* Argument i as a dimension (-rank..rank-1) of meta, 0..rank-1 in *ret. */
enum pst_status pst_infer_dim(const struct pst_infer *c, unsigned i,
                              const struct pst_meta *meta,
                              unsigned *ret) PST_MUST_CHECK;
/* The same for one number. */
enum pst_status pst_infer_dim_at(const struct pst_infer *c, int64_t dim,
                                 const struct pst_meta *meta,
                                 unsigned *ret) PST_MUST_CHECK;
/* Argument i (int[], int[]?) as a set of dimensions of meta; None or an empty
 * list sets all. Repeated dimensions fail. */
enum pst_status pst_infer_dims(const struct pst_infer *c, unsigned i,
                               const struct pst_meta *meta,
                               bool ret[PST_MAX_RANK]) PST_MUST_CHECK;
/* dtype argument i; otherwise if None. */
enum pst_dtype pst_infer_dtype(const struct pst_infer *c, unsigned i,
                               enum pst_dtype otherwise);
/* Both tensor arguments have the same dtype, else a failure. */
enum pst_status pst_infer_same_dtype(const struct pst_infer *c, unsigned i,
                                     unsigned j) PST_MUST_CHECK;

/* Result k := contiguous, checked (sizes >= 0, no overflow). */
enum pst_status pst_infer_set(struct pst_infer *c, unsigned k,
                              enum pst_dtype dtype, unsigned rank,
                              const int64_t *sizes) PST_MUST_CHECK;
/* Result k := meta's sizes, contiguous, of dtype. */
enum pst_status pst_infer_set_like(struct pst_infer *c, unsigned k,
                                   enum pst_dtype dtype,
                                   const struct pst_meta *meta) PST_MUST_CHECK;
/* Result k := view of tensor argument i with meta's sizes and strides, whose
 * first element is `offset` elements behind the argument's. */
enum pst_status pst_infer_view(struct pst_infer *c, unsigned k, unsigned i,
                               const struct pst_meta *meta,
                               int64_t offset) PST_MUST_CHECK;

/* Result k := broadcast of tensor arguments first..first+n-1 (None is passed
 * over, lists count with all their tensors), contiguous, of dtype. */
enum pst_status pst_infer_broadcast(struct pst_infer *c, unsigned k,
                                    unsigned first, unsigned n,
                                    enum pst_dtype dtype) PST_MUST_CHECK;

/* Whole inference functions (pst_infer_same_as_0 is in op.h). */

/* Arguments 0 and 1 (tensors or numbers) broadcast; promoted dtype, the same
 * with integers made f32 (div), or bool (comparisons). */
enum pst_status pst_infer_binary(struct pst_infer *c);
enum pst_status pst_infer_binary_float(struct pst_infer *c);
enum pst_status pst_infer_compare(struct pst_infer *c);
/* Shape of argument 0; integers become f32 (exp, sqrt). */
enum pst_status pst_infer_unary_float(struct pst_infer *c);
/* Shape of argument 0; bool (isnan, logical_not). */
enum pst_status pst_infer_unary_bool(struct pst_infer *c);

#endif
