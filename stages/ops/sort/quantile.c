// SPDX-License-Identifier: Apache-2.0
/* argsort, msort and quantiles: compositions on sorted lanes. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"

#include <string.h>

PST_COMPOSE(argsort,
            "argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor",
            "sort(self, dim, descending)[1]");
PST_COMPOSE(
    argsort_stable,
    "argsort.stable(Tensor self, *, bool stable, int dim=-1, "
    "bool descending=False) -> Tensor",
    "sort.stable(self, stable=stable, dim=dim, descending=descending)[1]");
PST_COMPOSE(msort, "msort(Tensor self) -> Tensor", "sort(self, 0)[0]");

/* Replaces each lane in the last dimension by its quantiles q (a vector). If
 * `nan_too`, a lane with NaN has quantiles of NaN; else NaN is ignored. */
PST_REWRITE_FORMULA(
    quantiles,
    "penstock::quantiles(Tensor self, Tensor q, bool nan_too, "
    "str interpolation) -> Tensor",
    "rows = sort(self, -1)[0];"
    "nans = sum.dim_IntList(isnan(self), [-1], True);"
    "last = size(self, -1) - 1;"
    "numbers = cast(maximum(last - nans, zeros_like(nans)), dtype(self));"
    "ranks = nan_too ? (nans > 0 ? last : q * last) : q * numbers;"
    "below = cast(same(interpolation, 'higher') ? ceil(ranks) : "
    "(same(interpolation, 'nearest') ? round(ranks) : floor(ranks)), i64);"
    "low = gather(rows, -1, below);"
    "high = gather(rows, -1, cast(ceil(ranks), i64));"
    "same(interpolation, 'linear') ? "
    "lerp.Tensor(low, high, ranks - cast(below, dtype(self))) : "
    "(same(interpolation, 'midpoint') ? lerp.Scalar(low, high, 0.5) : low)");

/* Arguments 2, 3 and 4 are dim, keepdim and interpolation. */
static enum pst_status quantile(struct pst_rewrite *w, bool nan_too)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *q = pst_rewrite_in(w, 1);
    const struct pst_arg *dim = &w->args[2];
    const bool keep = w->args[3].b;
    const unsigned rank = x->meta.rank;
    const struct pst_extent flat = pst_extent(-1);
    struct pst_extent ones[PST_MAX_RANK];
    int64_t order[PST_MAX_RANK + 1];
    bool vector = q != NULL && q->meta.rank == 1;
    int d = dim->kind == PST_ARG_INT ? pst_meta_dim(&x->meta, dim->i) : 0;

    if (q == NULL)
        q = pst_rw(w, &pst_op_full,
                   PST_ARGS(pst_ints(NULL, 0), w->args[1],
                            pst_dtype_arg(x->meta.dtype)));
    if (q == NULL || d < 0 || q->meta.rank > 1)
        return pst_rewrite_fail(w, "dim or q is out of range");
    q = pst_rw_reshape(w, q, 1, &flat);
    if (dim->kind != PST_ARG_INT || rank == 0)
        x = pst_rw_reshape(w, x, 1, &flat);
    else
        x = pst_rw(w, &pst_op_movedim_int,
                   PST_ARGS(pst_v(x), pst_i(d), pst_i(-1)));
    x = pst_rw(w, &pst_op_quantiles,
               PST_ARGS(pst_v(x), pst_v(q), pst_b(nan_too), w->args[4]));
    if (x == NULL)
        return w->build->status;
    /* Permutes (..., q) to (q, ...); with keepdim, also adds the dimension of
     * the lane with size 1. */
    order[0] = x->meta.rank - 1;
    for (unsigned k = 1; k < x->meta.rank; k++)
        order[k] = k - 1;
    x = pst_rw_permute(w, x, order, x->meta.rank);
    if (keep && dim->kind == PST_ARG_INT && rank > 0)
        x = pst_rw(w, &pst_op_unsqueeze, PST_ARGS(pst_v(x), pst_i(d + 1)));
    for (unsigned k = 0; k < PST_MAX_RANK; k++)
        ones[k] = pst_extent(1);
    if (keep && dim->kind != PST_ARG_INT && x != NULL && rank < PST_MAX_RANK) {
        ones[0] = pst_rw_size(w, x, 0);
        x = pst_rw_reshape(w, x, rank + 1, ones);
    }
    if (!vector)
        x = pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(x), pst_i(0)));
    return pst_rewrite_out(w, 0, x);
}

static enum pst_status quantile_rewrite(struct pst_rewrite *w)
{
    return quantile(w, true);
}

static enum pst_status nanquantile_rewrite(struct pst_rewrite *w)
{
    return quantile(w, false);
}

#define ROWS(name, fn)                                                         \
    PST_REWRITE(name,                                                          \
                "aten::" #name "(Tensor self, Tensor q, int? dim=None, "       \
                "bool keepdim=False, *, str interpolation=\"linear\") -> "     \
                "Tensor",                                                      \
                fn);                                                           \
    PST_REWRITE(name##_scalar,                                                 \
                "aten::" #name ".scalar(Tensor self, float q, "                \
                "int? dim=None, bool keepdim=False, *, "                       \
                "str interpolation=\"linear\") -> Tensor",                     \
                fn)
ROWS(quantile, quantile_rewrite);
ROWS(nanquantile, nanquantile_rewrite);
