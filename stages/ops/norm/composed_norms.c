// SPDX-License-Identifier: Apache-2.0
/* Further norms, and the backward operators of the core ATen set, as
 * compositions. */
#include "stages/ops/core/rewrite.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/norm/norm.h"

static struct pst_value *reduce(struct pst_rewrite *w, const struct pst_op *op,
                                struct pst_value *x, const int64_t *dims,
                                unsigned n, bool keepdim)
{
    return pst_rw(w, op, PST_ARGS(pst_v(x), pst_ints(dims, n), pst_b(keepdim)));
}

/* --- weight norm: v g / |v|, norms over all dimensions but one ---------- */

static enum pst_status weight_norm(struct pst_rewrite *w)
{
    struct pst_value *v = pst_rewrite_in(w, 0), *g = pst_rewrite_in(w, 1);
    struct pst_value *norm;
    int64_t dims[PST_MAX_RANK];
    /* As in norm_except_dim, dim -1 does not mean the last dimension: the norm
     * is that of all elements. */
    const bool all = w->args[2].i == -1;
    const int dim = all ? -1 : pst_meta_dim(&v->meta, w->args[2].i);
    unsigned n = 0;

    if (dim < 0 && !all)
        return pst_rewrite_fail(w, "dimension %lld is out of range",
                                (long long)w->args[2].i);
    for (unsigned d = 0; d < v->meta.rank; d++)
        if ((int)d != dim)
            dims[n++] = d;
    norm = pst_rw_mul(w, v, v);
    if (n > 0)
        norm = reduce(w, &pst_op_sum_dim_IntList, norm, dims, n, true);
    norm = pst_rw(w, &pst_op_sqrt, PST_ARGS(pst_v(norm)));
    w->outs[0] = pst_rw_mul(
        w, v, pst_rw(w, &pst_op_div_Tensor, PST_ARGS(pst_v(g), pst_v(norm))));
    if (w->n_outs > 1)
        w->outs[1] = norm;
    return w->build->status;
}

PST_REWRITE(_weight_norm,
            "aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor",
            weight_norm);
PST_REWRITE(_weight_norm_interface,
            "aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> "
            "(Tensor, Tensor)",
            weight_norm);

/* --- RMS norm with rstd as a result --------------------------------------- */

static enum pst_status fused_rms_norm(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *squares;
    const enum pst_dtype dtype = x->meta.dtype == PST_F64 ? PST_F64 : PST_F32;
    const unsigned n = w->args[1].n;
    int64_t dims[PST_MAX_RANK];

    if (n < 1 || n > x->meta.rank)
        return pst_rewrite_fail(w, "%u dimensions cannot be normalised", n);
    for (unsigned d = 0; d < n; d++)
        dims[d] = x->meta.rank - n + d;
    w->outs[0] = pst_rw(w, &pst_op_rms_norm, w->args, 4);
    x = pst_rw_cast(w, x, dtype);
    squares = reduce(w, &pst_op_mean_dim, pst_rw_mul(w, x, x), dims, n, true);
    squares = pst_rw_shift(w, squares, pst_norm_eps(&w->args[3], dtype));
    w->outs[1] = pst_rw(w, &pst_op_rsqrt, PST_ARGS(pst_v(squares)));
    return w->build->status;
}

PST_REWRITE(_fused_rms_norm,
            "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, "
            "Tensor? weight, float? eps) -> (Tensor, Tensor)",
            fused_rms_norm);

/* --- backward operators ------------------------------------------------- */

/*
 * Gradients of a norm for given statistics, composed of differentiable
 * operators. The statistics are means over dims; dw is summed over others.
 *     dx = rstd (gw - mean(gw) - xhat mean(gw xhat)),  dw = sum g xhat
 */
struct norm_backward {
    struct pst_rewrite *w;
    struct pst_value *g, *xhat, *rstd, *weight;
    int64_t dims[PST_MAX_RANK], others[PST_MAX_RANK];
    unsigned n_dims, n_others;
};

static struct pst_value *back_input(const struct norm_backward *b)
{
    struct pst_rewrite *w = b->w;
    struct pst_value *gw = b->g, *of_g, *of_gx;

    if (b->weight != NULL)
        gw = pst_rw_mul(w, gw, b->weight);
    of_g = reduce(w, &pst_op_mean_dim, gw, b->dims, b->n_dims, true);
    of_gx = reduce(w, &pst_op_mean_dim, pst_rw_mul(w, gw, b->xhat), b->dims,
                   b->n_dims, true);
    gw = pst_rw_sub(w, pst_rw_sub(w, gw, of_g), pst_rw_mul(w, b->xhat, of_gx));
    return pst_rw_mul(w, gw, b->rstd);
}

static struct pst_value *back_sum(const struct norm_backward *b,
                                  struct pst_value *x)
{
    if (b->n_others == 0)
        return x;
    return reduce(b->w, &pst_op_sum_dim_IntList, x, b->others, b->n_others,
                  false);
}

/* Reshapes x to the sizes of `other`. */
static struct pst_value *reshape_like(struct pst_rewrite *w,
                                      struct pst_value *x,
                                      const struct pst_value *other)
{
    return pst_rw(w, &pst_op_reshape,
                  PST_ARGS(pst_v(x), pst_extents_of(w->build, other)));
}

static struct pst_value *normalised(struct pst_rewrite *w, struct pst_value *x,
                                    struct pst_value *mean,
                                    struct pst_value *rstd)
{
    return pst_rw_mul(w, pst_rw_sub(w, x, mean), rstd);
}

/* Returns rstd, as given, with a gradient as a function of x: -rstd^3 (x -
 * mean) / n. */
static struct pst_value *rstd_of(struct pst_rewrite *w, struct pst_value *x,
                                 struct pst_value *mean, struct pst_value *rstd,
                                 const struct norm_backward *b,
                                 struct pst_extent n)
{
    const struct pst_arg half = pst_f(-0.5), count = pst_rw_int(w, n);
    const struct pst_arg by = pst_extent_fold(
        w->build, "FloatTrueDiv", &half, &count, pst_f(-0.5 / (double)n.value));
    struct pst_value *d = pst_rw_sub(w, x, mean), *cube;

    d = reduce(w, &pst_op_sum_dim_IntList, pst_rw_mul(w, d, d), b->dims,
               b->n_dims, true);
    cube = pst_rw_mul(w, rstd, pst_rw_mul(w, rstd, rstd));
    d = pst_rw(w, &pst_op_mul_Scalar,
               PST_ARGS(pst_v(pst_rw_mul(w, d, cube)), by));
    return pst_rw(w, &pst_op_with_history, PST_ARGS(pst_v(rstd), pst_v(d)));
}

static enum pst_status layer_norm_backward(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 1), *mean, *rstd, *xhat;
    const struct pst_arg *mask = &w->args[7];
    struct norm_backward b = {
        .w = w, .g = pst_rewrite_in(w, 0), .weight = pst_rewrite_in(w, 5)};
    struct pst_extent size[3] = {pst_extent(1), pst_extent(1), pst_extent(1)};

    if (mask->n != 3 || w->args[2].n < 1 || w->args[2].n > x->meta.rank)
        return pst_rewrite_fail(w, "the normalised dimensions do not fit");
    for (unsigned d = 0; d < x->meta.rank; d++)
        if (d + w->args[2].n < x->meta.rank) {
            b.others[b.n_others++] = d;
            size[0] = pst_extent_mul(w->build, size[0], pst_rw_size(w, x, d));
        } else {
            b.dims[b.n_dims++] = d;
            size[2] = pst_extent_mul(w->build, size[2], pst_rw_size(w, x, d));
        }
    mean = pst_rw(w, &pst_op_detach, PST_ARGS(w->args[3]));
    rstd = pst_rw(w, &pst_op_detach, PST_ARGS(w->args[4]));
    b.rstd = rstd_of(w, x, mean, rstd, &b, size[2]);
    xhat =
        pst_rw(w, &pst_op_norm_apply,
               PST_ARGS(pst_v(pst_rw_reshape(w, x, 3, size)), pst_none(),
                        pst_none(), pst_v(pst_rw_reshape(w, mean, 2, size)),
                        pst_v(pst_rw_reshape(w, rstd, 2, size)), pst_b(true)));
    b.xhat = reshape_like(w, xhat, x);
    if (mask->bools[0])
        w->outs[0] = back_input(&b);
    if (mask->bools[1])
        w->outs[1] = back_sum(&b, pst_rw_mul(w, b.g, b.xhat));
    if (mask->bools[2])
        w->outs[2] = back_sum(&b, b.g);
    return w->build->status;
}

PST_REWRITE(native_layer_norm_backward,
            "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, "
            "SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? "
            "weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, "
            "Tensor)",
            layer_norm_backward);

/* Views the tensors as (N, G, C / G, S). */
static enum pst_status group_norm_backward(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 1), *weight = pst_rewrite_in(w, 4);
    const struct pst_arg *mask = &w->args[9];
    const struct pst_extent n = pst_extent_in(w->build, &w->args[5], 0);
    const struct pst_extent c = pst_extent_in(w->build, &w->args[6], 0);
    const struct pst_extent s = pst_extent_in(w->build, &w->args[7], 0);
    const struct pst_extent g = pst_extent(w->args[8].i), one = pst_extent(1);
    const struct pst_extent each =
        g.value > 0 ? pst_extent_floordiv(w->build, c, g) : pst_extent(0);
    const struct pst_extent shape[4] = {n, g, each, s};
    const struct pst_extent stat[4] = {n, g, one, one};
    const struct pst_extent of_w[4] = {one, g, each, one};
    struct norm_backward b = {
        .w = w, .dims = {2, 3}, .n_dims = 2, .others = {0, 3}, .n_others = 2};

    if (mask->n != 3 || g.value < 1 || c.value % g.value != 0)
        return pst_rewrite_fail(w, "the groups do not fit");
    b.g = pst_rw_reshape(w, pst_rewrite_in(w, 0), 4, shape);
    b.rstd = pst_rw_reshape(w, pst_rewrite_in(w, 3), 4, stat);
    b.xhat =
        normalised(w, pst_rw_reshape(w, x, 4, shape),
                   pst_rw_reshape(w, pst_rewrite_in(w, 2), 4, stat), b.rstd);
    if (weight != NULL)
        b.weight = pst_rw_reshape(w, weight, 4, of_w);
    if (mask->bools[0])
        w->outs[0] = reshape_like(w, back_input(&b), x);
    if (mask->bools[1])
        w->outs[1] =
            pst_rw_reshape(w, back_sum(&b, pst_rw_mul(w, b.g, b.xhat)), 1, &c);
    if (mask->bools[2])
        w->outs[2] = pst_rw_reshape(w, back_sum(&b, b.g), 1, &c);
    return w->build->status;
}

PST_REWRITE(native_group_norm_backward,
            "aten::native_group_norm_backward(Tensor grad_out, Tensor input, "
            "Tensor mean, Tensor rstd, Tensor? weight, SymInt N, SymInt C, "
            "SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, "
            "Tensor)",
            group_norm_backward);
