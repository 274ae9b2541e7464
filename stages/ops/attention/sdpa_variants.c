// SPDX-License-Identifier: Apache-2.0
/* Rewrites PyTorch's other attention operators, which also return each row's
 * log-sum-exp or the probabilities. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <math.h>

struct form {
    struct pst_rewrite *w;
    struct pst_value *q, *k, *v, *mask; /* mask: NULL if absent */
    struct pst_arg scale;
    bool causal;
};

/* Repeats the heads of k or v for grouped queries: (..., H, S, E) to (..., H G,
 * S, E). */
static struct pst_value *repeat_heads(const struct form *f, struct pst_value *x)
{
    const struct pst_meta *m = &x->meta, *q = &f->q->meta;
    const unsigned at = m->rank - 3;
    struct pst_extent size[PST_MAX_RANK + 1], merged[PST_MAX_RANK], group;

    if (m->rank < 3 || m->rank >= PST_MAX_RANK || q->rank != m->rank ||
        pst_extent_less(f->w->build, pst_rw_size(f->w, x, at), pst_extent(1)) ||
        !pst_extent_is(f->w->build,
                       pst_extent_mod(f->w->build, pst_rw_size(f->w, f->q, at),
                                      pst_rw_size(f->w, x, at)),
                       pst_extent(0))) {
        pst_rewrite_fail(f->w, "the numbers of heads do not fit");
        return NULL;
    }
    group = pst_extent_floordiv(f->w->build, pst_rw_size(f->w, f->q, at),
                                pst_rw_size(f->w, x, at));
    for (unsigned d = 0, e = 0; d < m->rank; d++) {
        merged[d] = pst_rw_size(f->w, d == at ? f->q : x, d);
        size[e++] = pst_rw_size(f->w, x, d);
        if (d == at)
            size[e++] = group;
    }
    x = pst_rw(f->w, &pst_op_unsqueeze, PST_ARGS(pst_v(x), pst_i(at + 1)));
    if (x == NULL)
        return NULL;
    x = pst_rw(f->w, &pst_op_expand,
               PST_ARGS(pst_v(x), pst_rw_ints(f->w, size, x->meta.rank)));
    return x == NULL ? NULL : pst_rw_reshape(f->w, x, x->meta.rank - 1, merged);
}

/* Sets the scores where mask is false to minus infinity. */
static struct pst_value *mask_scores(const struct form *f,
                                     struct pst_value *scores,
                                     struct pst_value *mask)
{
    return pst_rw(f->w, &pst_op_where_ScalarOther,
                  PST_ARGS(pst_v(mask), pst_v(scores), pst_f(-INFINITY)));
}

static struct pst_value *causal_mask(const struct form *f,
                                     const struct pst_value *scores)
{
    const unsigned rank = scores->meta.rank;
    const struct pst_extent size[2] = {pst_rw_size(f->w, scores, rank - 2),
                                       pst_rw_size(f->w, scores, rank - 1)};
    struct pst_value *ones =
        pst_rw(f->w, &pst_op_full,
               PST_ARGS(pst_rw_ints(f->w, size, 2), pst_b(true),
                        pst_dtype_arg(PST_BOOL)));

    return pst_rw(f->w, &pst_op_tril, PST_ARGS(pst_v(ones)));
}

/* scores = scale q k^T + mask */
static struct pst_value *scores_of(const struct form *f)
{
    struct pst_rewrite *w = f->w;
    const struct pst_extent width = pst_rw_size(w, f->q, f->q->meta.rank - 1);
    const struct pst_arg e = pst_rw_int(w, width), one = pst_f(1.0);
    const struct pst_arg root =
        pst_extent_fold(w->build, "OpaqueUnaryFn_sqrt", &e, NULL,
                        pst_f(sqrt((double)width.value)));
    const struct pst_arg scale =
        f->scale.kind == PST_ARG_FLOAT
            ? f->scale
            : pst_extent_fold(w->build, "FloatTrueDiv", &one, &root,
                              pst_f(1.0 / root.f));
    struct pst_value *kt, *scores, *q;

    kt = pst_rw(w, &pst_op_transpose_int,
                PST_ARGS(pst_v(f->k), pst_i(-2), pst_i(-1)));
    q = pst_rw(w, &pst_op_mul_Scalar, PST_ARGS(pst_v(f->q), scale));
    scores = pst_rw(w, &pst_op_matmul, PST_ARGS(pst_v(q), pst_v(kt)));
    if (scores == NULL)
        return NULL;
    if (f->causal)
        scores = mask_scores(f, scores, causal_mask(f, scores));
    if (f->mask != NULL && f->mask->meta.dtype == PST_BOOL)
        scores = mask_scores(f, scores, f->mask);
    else if (f->mask != NULL)
        scores = pst_rw_add(w, scores, f->mask);
    return scores;
}

static bool has_matrices(const struct form *f)
{
    return f->q->meta.rank >= 2 && f->k->meta.rank >= 2 && f->v->meta.rank >= 2;
}

static enum pst_status rewrite_flash(struct pst_rewrite *w)
{
    const struct pst_arg *a = w->args;
    const struct form f = {.w = w,
                           .q = pst_rewrite_in(w, 0),
                           .k = pst_rewrite_in(w, 1),
                           .v = pst_rewrite_in(w, 2),
                           .mask = pst_rewrite_in(w, 5),
                           .scale = a[6],
                           .causal = a[4].b};
    const int64_t last = -1;
    struct pst_value *scores, *mask = f.mask;

    if (!has_matrices(&f))
        return pst_rewrite_fail(w, "the operands are no matrices");
    /* As in PyTorch, neither the mask nor the log-sum-exp has a gradient
     * here. */
    if (mask != NULL)
        mask = pst_rw(w, &pst_op_detach, PST_ARGS(pst_v(mask)));
    w->outs[0] =
        pst_rw(w, &pst_op_scaled_dot_product_attention,
               PST_ARGS(a[0], a[1], a[2], pst_v(mask), a[3], a[4], a[6]));
    scores = scores_of(&f);
    if (scores != NULL && scores->meta.dtype != PST_F64)
        scores = pst_rw_cast(w, scores, PST_F32);
    scores = pst_rw(w, &pst_op_detach, PST_ARGS(pst_v(scores)));
    return pst_rewrite_out(w, 1,
                           pst_rw(w, &pst_op_logsumexp,
                                  PST_ARGS(pst_v(scores), pst_ints(&last, 1))));
}

PST_REWRITE(_scaled_dot_product_flash_attention_for_cpu,
            "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, "
            "Tensor key, Tensor value, float dropout_p=0., bool "
            "is_causal=False, *, Tensor? attn_mask=None, float? scale=None) "
            "-> (Tensor output, Tensor logsumexp)",
            rewrite_flash);

static enum pst_status rewrite_math(struct pst_rewrite *w)
{
    const struct pst_arg *a = w->args;
    struct form f = {.w = w,
                     .q = pst_rewrite_in(w, 0),
                     .k = pst_rewrite_in(w, 1),
                     .v = pst_rewrite_in(w, 2),
                     .mask = pst_rewrite_in(w, 3),
                     .scale = a[7],
                     .causal = a[5].b};
    struct pst_value *p;

    if (!has_matrices(&f))
        return pst_rewrite_fail(w, "the operands are no matrices");
    if (pst_rewrite_in(w, 6) != NULL)
        return pst_rewrite_refuse(w, "a given dropout mask is not supported");
    if (a[8].b) {
        f.k = repeat_heads(&f, f.k);
        f.v = f.k == NULL ? NULL : repeat_heads(&f, f.v);
    }
    if (f.k == NULL || f.v == NULL)
        return w->build->status;
    p = pst_rw(w, &pst_op__safe_softmax,
               PST_ARGS(pst_v(scores_of(&f)), pst_i(-1)));
    if (a[4].f > 0.0)
        p = pst_rw(w, &pst_op_dropout,
                   PST_ARGS(pst_v(p), pst_f(a[4].f), pst_b(true)));
    w->outs[0] = pst_rw(w, &pst_op_matmul, PST_ARGS(pst_v(p), pst_v(f.v)));
    w->outs[1] = p;
    return w->build->status;
}

PST_REWRITE(_scaled_dot_product_attention_math,
            "aten::_scaled_dot_product_attention_math(Tensor query, Tensor "
            "key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., "
            "bool is_causal=False, Tensor? dropout_mask=None, *, float? "
            "scale=None, bool enable_gqa=False) -> (Tensor, Tensor)",
            rewrite_math);
