// SPDX-License-Identifier: Apache-2.0
/* Losses and distances composed of other operators, as in PyTorch. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/loss.h"

#include <math.h>

/* Sets result 0 to x, its mean or its sum. */
static enum pst_status set_reduced(struct pst_rewrite *w, struct pst_value *x,
                                   int64_t reduction)
{
    if (reduction < PST_REDUCE_NONE || reduction > PST_REDUCE_SUM)
        return pst_rewrite_fail(w, "reduction %d is none of 0, 1, 2",
                                (int)reduction);
    if (reduction != PST_REDUCE_NONE)
        x = pst_rw(w, reduction == PST_REDUCE_MEAN ? &pst_op_mean : &pst_op_sum,
                   PST_ARGS(pst_v(x)));
    return pst_rewrite_out(w, 0, x);
}

static struct pst_value *unary(struct pst_rewrite *w, const struct pst_op *op,
                               struct pst_value *x)
{
    return pst_rw(w, op, PST_ARGS(pst_v(x)));
}

static struct pst_value *above_zero(struct pst_rewrite *w, struct pst_value *x)
{
    return pst_rw(w, &pst_op_clamp, PST_ARGS(pst_v(x), pst_i(0)));
}

/* Returns x where target is `at` (where it is not `at` if `is` is false), and 0
 * elsewhere. */
static struct pst_value *where_target(struct pst_rewrite *w,
                                      struct pst_value *target, bool is,
                                      int64_t at, struct pst_value *x)
{
    struct pst_value *mask =
        pst_rw(w, is ? &pst_op_ne_Scalar : &pst_op_eq_Scalar,
               PST_ARGS(pst_v(target), pst_i(at)));

    return pst_rw(w, &pst_op_masked_fill_Scalar,
                  PST_ARGS(pst_v(x), pst_v(mask), pst_i(0)));
}

/* Sums over dimension `dim`. */
static struct pst_value *sum_dim(struct pst_rewrite *w, struct pst_value *x,
                                 int64_t dim)
{
    return pst_rw(w, &pst_op_sum_dim_IntList,
                  PST_ARGS(pst_v(x), pst_ints(&dim, 1)));
}

/* --- elementwise ---------------------------------------------------------- */

/* |x - y| */
static enum pst_status l1_rewrite(struct pst_rewrite *w)
{
    struct pst_value *d =
        pst_rw_sub(w, pst_rewrite_in(w, 0), pst_rewrite_in(w, 1));

    return set_reduced(w, unary(w, &pst_op_abs, d), w->args[2].i);
}

/* y log y - y x; e^y (y - x) if the targets are logarithms */
static enum pst_status kl_div_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *y = pst_rewrite_in(w, 1);

    if (w->args[3].b)
        x = pst_rw_mul(w, unary(w, &pst_op_exp, y), pst_rw_sub(w, y, x));
    else
        x = pst_rw_sub(
            w, pst_rw(w, &pst_op_xlogy_Tensor, PST_ARGS(pst_v(y), pst_v(y))),
            pst_rw_mul(w, y, x));
    return set_reduced(w, x, w->args[2].i);
}

/* e^x - y x if x is a logarithm, else x - y log(x + eps); `full` adds
 * Stirling's formula, y log y - y + log(2 pi y) / 2, where y > 1. */
static enum pst_status poisson_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *y = pst_rewrite_in(w, 1);
    struct pst_value *loss, *s, *mask;

    if (w->args[2].b)
        loss = pst_rw_sub(w, unary(w, &pst_op_exp, x), pst_rw_mul(w, y, x));
    else
        loss = pst_rw_sub(
            w, x,
            pst_rw_mul(
                w, y, unary(w, &pst_op_log, pst_rw_shift(w, x, w->args[4].f))));
    if (w->args[3].b) {
        s = pst_rw_sub(w, pst_rw_mul(w, y, unary(w, &pst_op_log, y)), y);
        s = pst_rw_add(
            w, s,
            pst_rw_scale(
                w, unary(w, &pst_op_log, pst_rw_scale(w, y, 2.0 * M_PI)), 0.5));
        mask = pst_rw(w, &pst_op_le_Scalar, PST_ARGS(pst_v(y), pst_i(1)));
        s = pst_rw(w, &pst_op_masked_fill_Scalar,
                   PST_ARGS(pst_v(s), pst_v(mask), pst_i(0)));
        loss = pst_rw_add(w, loss, s);
    }
    return set_reduced(w, loss, w->args[5].i);
}

/* max(0, margin - x) where the target is not 1, x where it is not -1 */
static enum pst_status hinge_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *t = pst_rewrite_in(w, 1);
    struct pst_value *margin =
        above_zero(w, pst_rw_shift(w, pst_rw_scale(w, x, -1.0), w->args[2].f));

    return set_reduced(w,
                       pst_rw_add(w, where_target(w, t, false, 1, margin),
                                  where_target(w, t, false, -1, x)),
                       w->args[3].i);
}

/* max(0, margin - t (x - y)) */
static enum pst_status ranking_rewrite(struct pst_rewrite *w)
{
    struct pst_value *d =
        pst_rw_sub(w, pst_rewrite_in(w, 0), pst_rewrite_in(w, 1));

    d = pst_rw_mul(w, pst_rw_scale(w, pst_rewrite_in(w, 2), -1.0), d);
    return set_reduced(w, above_zero(w, pst_rw_shift(w, d, w->args[3].f)),
                       w->args[4].i);
}

/* --- vectors -------------------------------------------------------------- */

/* |x - y + eps|_p along the last dimension */
static struct pst_value *distance(struct pst_rewrite *w, struct pst_value *x,
                                  struct pst_value *y, double p, double eps,
                                  bool keepdim)
{
    struct pst_value *d = pst_rw_shift(w, pst_rw_sub(w, x, y), eps);
    const int64_t last = -1;

    return pst_rw(
        w, &pst_op_linalg_vector_norm,
        PST_ARGS(pst_v(d), pst_f(p), pst_ints(&last, 1), pst_b(keepdim)));
}

static enum pst_status distance_rewrite(struct pst_rewrite *w)
{
    return pst_rewrite_out(w, 0,
                           distance(w, pst_rewrite_in(w, 0),
                                    pst_rewrite_in(w, 1), w->args[2].f,
                                    w->args[3].f, w->args[4].b));
}

/* max(0, margin + |a - p| - |a - n|); `swap` replaces |a - n| by the minimum of
 * |a - n| and |p - n| */
static enum pst_status triplet_rewrite(struct pst_rewrite *w)
{
    struct pst_value *a = pst_rewrite_in(w, 0), *p = pst_rewrite_in(w, 1),
                     *n = pst_rewrite_in(w, 2);
    const double order = w->args[4].f, eps = w->args[5].f;
    struct pst_value *near = distance(w, a, p, order, eps, false);
    struct pst_value *far = distance(w, a, n, order, eps, false);

    if (w->args[6].b)
        far = pst_rw(
            w, &pst_op_minimum,
            PST_ARGS(pst_v(far), pst_v(distance(w, p, n, order, eps, false))));
    return set_reduced(
        w,
        above_zero(w, pst_rw_shift(w, pst_rw_sub(w, near, far), w->args[3].f)),
        w->args[7].i);
}

/* Returns x / max(|x|, eps) along dim. As in PyTorch, the gradient is that of
 * the norm even where eps is larger. */
static struct pst_value *normalised(struct pst_rewrite *w, struct pst_value *x,
                                    int64_t dim, double eps)
{
    struct pst_value *norm =
        pst_rw(w, &pst_op_linalg_vector_norm,
               PST_ARGS(pst_v(x), pst_f(2.0), pst_ints(&dim, 1), pst_b(true)));
    struct pst_value *bound =
        pst_rw(w, &pst_op_clamp, PST_ARGS(pst_v(norm), pst_f(eps)));

    bound = unary(w, &pst_op_detach, pst_rw_sub(w, bound, norm));
    return pst_rw(w, &pst_op_div_Tensor,
                  PST_ARGS(pst_v(x), pst_v(pst_rw_add(w, norm, bound))));
}

static enum pst_status similarity_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x[2] = {pst_rewrite_in(w, 0), pst_rewrite_in(w, 1)};
    const enum pst_dtype dtype = pst_result_type(w->args, 2);
    const int64_t dim = w->args[2].i;
    struct pst_extent sizes[PST_MAX_RANK];
    struct pst_meta shape;

    if (!pst_meta_broadcast(&x[0]->meta, &x[1]->meta, &shape))
        return pst_rewrite_fail(w, "the shapes do not broadcast");
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        return pst_rewrite_fail(w, "not defined for %s", pst_dtype_name(dtype));
    for (unsigned d = 0; d < shape.rank; d++) {
        sizes[d] = pst_extent(1);
        for (unsigned k = 0; k < 2; k++)
            if (d + x[k]->meta.rank >= shape.rank)
                sizes[d] = pst_extent_broadcast(
                    w->build, sizes[d],
                    pst_rw_size(w, x[k], d + x[k]->meta.rank - shape.rank));
    }
    for (unsigned k = 0; k < 2; k++) {
        x[k] = pst_rw_cast(w, x[k], dtype);
        if (x[k] != NULL && !pst_meta_same_shape(&x[k]->meta, &shape))
            x[k] = pst_rw(
                w, &pst_op_expand,
                PST_ARGS(pst_v(x[k]), pst_rw_ints(w, sizes, shape.rank)));
        x[k] = normalised(w, x[k], dim, w->args[3].f);
    }
    return pst_rewrite_out(w, 0, sum_dim(w, pst_rw_mul(w, x[0], x[1]), dim));
}

/* 1 - cos where the target is 1, max(0, cos - margin) where it is -1 */
static enum pst_status cosine_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *y = pst_rewrite_in(w, 1),
                     *t = pst_rewrite_in(w, 2), *c, *d;
    const int64_t dim = t->meta.rank;
    const double tiny = 1e-12;

    if (t->meta.rank > 1 || x->meta.rank != t->meta.rank + 1 ||
        y->meta.rank != x->meta.rank)
        return pst_rewrite_fail(w,
                                "inputs of %u and %u dimensions do not fit "
                                "a target of %u",
                                x->meta.rank, y->meta.rank, t->meta.rank);
    c = sum_dim(w, pst_rw_mul(w, x, y), dim);
    d = pst_rw_mul(w,
                   pst_rw_shift(w, sum_dim(w, pst_rw_mul(w, x, x), dim), tiny),
                   pst_rw_shift(w, sum_dim(w, pst_rw_mul(w, y, y), dim), tiny));
    d = unary(w, &pst_op_sqrt, d);
    c = pst_rw(w, &pst_op_div_Tensor, PST_ARGS(pst_v(c), pst_v(d)));
    d = pst_rw_shift(w, pst_rw_scale(w, c, -1.0), 1.0);
    c = above_zero(w, pst_rw_shift(w, c, -w->args[3].f));
    return set_reduced(w,
                       pst_rw_add(w, where_target(w, t, true, 1, d),
                                  where_target(w, t, true, -1, c)),
                       w->args[4].i);
}

static enum pst_status pdist_rewrite(struct pst_rewrite *w)
{
    return pst_rewrite_out(w, 0, pst_rw(w, &pst_op_pdist_forward, w->args, 2));
}

/* --- rows ----------------------------------------------------------------- */

PST_REWRITE(l1_loss,
            "aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> "
            "Tensor",
            l1_rewrite);
PST_REWRITE(kl_div,
            "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool "
            "log_target=False) -> Tensor",
            kl_div_rewrite);
PST_REWRITE(poisson_nll_loss,
            "aten::poisson_nll_loss(Tensor input, Tensor target, bool "
            "log_input, bool full, float eps, int reduction) -> Tensor",
            poisson_rewrite);
PST_REWRITE(hinge_embedding_loss,
            "aten::hinge_embedding_loss(Tensor self, Tensor target, float "
            "margin=1., int reduction=1) -> Tensor",
            hinge_rewrite);
PST_REWRITE(margin_ranking_loss,
            "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor "
            "target, float margin=0., int reduction=1) -> Tensor",
            ranking_rewrite);
PST_REWRITE(pairwise_distance,
            "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float "
            "eps=9.9999999999999995e-07, bool keepdim=False) -> Tensor",
            distance_rewrite);
PST_REWRITE(triplet_margin_loss,
            "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor "
            "negative, float margin=1., float p=2., float "
            "eps=9.9999999999999995e-07, bool swap=False, int reduction=1) -> "
            "Tensor",
            triplet_rewrite);
PST_REWRITE(cosine_similarity,
            "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float "
            "eps=1e-08) -> Tensor",
            similarity_rewrite);
PST_REWRITE(cosine_embedding_loss,
            "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor "
            "target, float margin=0., int reduction=1) -> Tensor",
            cosine_rewrite);
PST_REWRITE(pdist, "aten::pdist(Tensor self, float p=2.) -> Tensor",
            pdist_rewrite);
