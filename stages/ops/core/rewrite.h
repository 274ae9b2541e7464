// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_REWRITE_H
#define PENSTOCK_STAGES_OPS_CORE_REWRITE_H
/*
 * Helpers of rewrites. All emitters return NULL once the builder has failed,
 * and accept NULL: a rewrite emits its composition and ends with "return
 * w->build->status" or pst_rewrite_out.
 */
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"

/* Defines a row that is a composition. */
#define PST_REWRITE(id, text, fn)                                              \
    const struct pst_op pst_op_##id = {.schema = (text), .rewrite = (fn)}

/* Returns the value of argument i; NULL if it is None. */
static inline struct pst_value *pst_rewrite_in(const struct pst_rewrite *w,
                                               unsigned i)
{
    return w->args[i].kind == PST_ARG_VALUE ? w->args[i].value : NULL;
}
/* Sets result k; returns the builder's status. */
enum pst_status pst_rewrite_out(struct pst_rewrite *w, unsigned k,
                                struct pst_value *value);

/* Emits an operator (stages/ops/core/rows.h) and returns its first result; use
 * with PST_ARGS. It may be a composition too. */
struct pst_value *pst_rw(struct pst_rewrite *w, const struct pst_op *op,
                         const struct pst_arg *args, unsigned n_args);
/* Returns the node, for operators with several results; not for
 * compositions. */
struct pst_node *pst_rw_node(struct pst_rewrite *w, const struct pst_op *op,
                             const struct pst_arg *args, unsigned n_args);
/* Returns result k of such a node; NULL after a failure. */
static inline struct pst_value *pst_rw_nth(const struct pst_node *node,
                                           unsigned k)
{
    return node == NULL ? NULL : node->outs[k];
}

/* Emitters for the most frequent operators. */
struct pst_value *pst_rw_add(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b);
struct pst_value *pst_rw_sub(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b);
struct pst_value *pst_rw_mul(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b);
struct pst_value *pst_rw_scale(struct pst_rewrite *w, struct pst_value *a,
                               double by);
struct pst_value *pst_rw_shift(struct pst_rewrite *w, struct pst_value *a,
                               double by);
struct pst_value *pst_rw_reshape(struct pst_rewrite *w, struct pst_value *a,
                                 unsigned rank, const struct pst_extent *sizes);
/* Returns size d of v; graph/sizes/extent.h computes sizes and counts. */
static inline struct pst_extent pst_rw_size(const struct pst_rewrite *w,
                                            const struct pst_value *v,
                                            unsigned d)
{
    return pst_extent_of(w->build, v, d);
}
/* Computes the strides of a contiguous tensor with the sizes of v. */
void pst_rw_strides(struct pst_rewrite *w, const struct pst_value *v,
                    struct pst_extent ret[PST_MAX_RANK]);
/* Return numbers as arguments, with their symbolic expressions. */
static inline struct pst_arg pst_rw_int(struct pst_rewrite *w,
                                        struct pst_extent size)
{
    return pst_extent_arg(w->build, size);
}
static inline struct pst_arg pst_rw_ints(struct pst_rewrite *w,
                                         const struct pst_extent *sizes,
                                         unsigned n)
{
    return pst_extents_arg(w->build, sizes, n);
}
struct pst_value *pst_rw_permute(struct pst_rewrite *w, struct pst_value *a,
                                 const int64_t *dims, unsigned n);
/* Returns a, copied if it is operand i or a view, for operators whose result is
 * always a new tensor. */
struct pst_value *pst_rw_own(struct pst_rewrite *w, struct pst_value *a,
                             unsigned i);
/* Converts a to dtype; emits nothing if it has that dtype already. */
struct pst_value *pst_rw_cast(struct pst_rewrite *w, struct pst_value *a,
                              enum pst_dtype dtype);

/* Emits a node without results that runs for its effect: an assertion on data.
 * It is not counted in the numbering of nodes from which random streams are
 * derived, so it does not change the random numbers of later operators. */
enum pst_status pst_rewrite_effect(struct pst_rewrite *w,
                                   const struct pst_op *op,
                                   const struct pst_arg *args, unsigned n_args);

/* Report "OPERATOR: text" as PST_ERR_SHAPE or PST_ERR_UNSUPPORTED, and fail the
 * builder. */
enum pst_status pst_rewrite_fail(struct pst_rewrite *w, const char *fmt, ...)
    PST_PRINTF(2, 3);
enum pst_status pst_rewrite_refuse(struct pst_rewrite *w, const char *fmt, ...)
    PST_PRINTF(2, 3);

#endif
