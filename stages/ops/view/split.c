// SPDX-License-Identifier: Apache-2.0
/* Splits a tensor into views: split, chunk, unbind. The gradient is a single
 * cat or stack, not a sum of padded pieces. */
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

/* Sets the results to consecutive pieces along dim: piece k has size sizes[k]
 * or, if sizes is NULL, `each` (the last one may be shorter). */
static enum pst_status set_pieces(struct pst_infer *c, const struct pst_meta *x,
                                  unsigned dim, unsigned n,
                                  const int64_t *sizes, int64_t each)
{
    int64_t at = 0;

    if (x->rank == 0)
        return pst_infer_fail(c, "a tensor without dimensions");
    if (n > PST_MAX_OUTS)
        return pst_infer_refuse(c, "%u pieces, at most %d", n, PST_MAX_OUTS);
    c->n_outs = n;
    for (unsigned k = 0; k < n; k++) {
        struct pst_meta view = *x;
        enum pst_status status;

        view.size[dim] =
            sizes != NULL ? sizes[k] : PST_MIN(each, x->size[dim] - at);
        if (view.size[dim] < 0 || view.size[dim] > x->size[dim] - at)
            return pst_infer_fail(c,
                                  "the pieces do not fit dimension %u of "
                                  "size %lld",
                                  dim, (long long)x->size[dim]);
        status =
            pst_infer_view(c, k, 0, &view, pst_view_step(at, x->stride[dim]));
        if (status != PST_OK)
            return status;
        at += view.size[dim];
    }
    if (at != x->size[dim])
        return pst_infer_fail(c,
                              "the pieces do not fill dimension %u of size "
                              "%lld",
                              dim, (long long)x->size[dim]);
    return PST_OK;
}

static enum pst_status read_dim(struct pst_infer *c, const struct pst_meta **x,
                                unsigned arg, unsigned *dim)
{
    enum pst_status status = pst_infer_tensor(c, 0, x);

    return status != PST_OK ? status : pst_infer_dim(c, arg, *x, dim);
}

static enum pst_status equal_pieces(struct pst_infer *c,
                                    const struct pst_meta *x, unsigned dim,
                                    int64_t each)
{
    const int64_t size = x->rank > 0 ? x->size[dim] : 0;
    int64_t n = 1; /* an empty dimension is one piece */

    if (each < 0 || (each == 0 && size > 0))
        return pst_infer_fail(c, "pieces of size %lld", (long long)each);
    if (each > 0 && size > 0)
        n = (size - 1) / each + 1;
    return set_pieces(c, x, dim, (unsigned)PST_MIN(n, PST_MAX_OUTS + 1), NULL,
                      each);
}

static enum pst_status infer_split(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = read_dim(c, &x, 2, &dim);

    return status != PST_OK ? status : equal_pieces(c, x, dim, c->args[1].i);
}

static enum pst_status infer_chunk(struct pst_infer *c)
{
    const int64_t n = c->args[1].i;
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = read_dim(c, &x, 2, &dim);

    if (status != PST_OK)
        return status;
    if (x->rank == 0 || n < 1)
        return pst_infer_fail(c, "%lld pieces", (long long)n);
    if (x->size[dim] == 0) /* as many pieces as requested, all empty */
        return set_pieces(c, x, dim, (unsigned)PST_MIN(n, PST_MAX_OUTS + 1),
                          NULL, 0);
    return equal_pieces(c, x, dim, x->size[dim] / n + (x->size[dim] % n != 0));
}

static enum pst_status infer_split_sizes(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = read_dim(c, &x, 2, &dim);

    return status != PST_OK
               ? status
               : set_pieces(c, x, dim, c->args[1].n, c->args[1].ints, 0);
}

static enum pst_status infer_unbind(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = read_dim(c, &x, 1, &dim);

    if (status != PST_OK)
        return status;
    if (x->rank == 0)
        return pst_infer_fail(c, "a tensor without dimensions");
    if (x->size[dim] > PST_MAX_OUTS)
        return pst_infer_refuse(c, "%lld results, at most %d",
                                (long long)x->size[dim], PST_MAX_OUTS);
    c->n_outs = (unsigned)x->size[dim];
    for (unsigned k = 0; k < c->n_outs; k++) {
        const struct pst_meta view = pst_view_drop(x, dim);

        status = pst_infer_view(c, k, 0, &view, k * x->stride[dim]);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Joins the gradients of all results along argument `dim`, with zeros for
 * results that have none. */
static enum pst_status join_vjp(struct pst_vjp *v, const struct pst_op *op,
                                unsigned dim)
{
    struct pst_value *all[PST_MAX_OUTS];

    for (unsigned k = 0; k < v->node->n_outs; k++) {
        all[k] = pst_vjp_grad(v, k);
        if (all[k] == NULL)
            all[k] = pst_vjp_zeros_like(v, pst_vjp_out(v, k));
        if (all[k] == NULL)
            return v->build.status;
    }
    if (v->node->n_outs == 0)
        return pst_vjp_set(v, 0, pst_vjp_zeros_like(v, pst_vjp_in(v, 0)));
    return pst_vjp_set(v, 0,
                       pst_vjp_emit(v, op,
                                    PST_ARGS(pst_values(all, v->node->n_outs),
                                             v->node->args[dim])));
}

static enum pst_status split_vjp(struct pst_vjp *v)
{
    return join_vjp(v, &pst_op_cat, 2);
}

static enum pst_status unbind_vjp(struct pst_vjp *v)
{
    return join_vjp(v, &pst_op_stack, 1);
}

#define SPLIT(id, text, how, back)                                             \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor(a)[]",                             \
        .flags = PST_OP_VIEW,                                                  \
        .infer = how,                                                          \
        .vjp = back,                                                           \
    }

SPLIT(split_Tensor,
      "split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0)",
      infer_split, split_vjp);
SPLIT(split_sizes,
      "split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0)",
      infer_split_sizes, split_vjp);
SPLIT(split_with_sizes,
      "split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, "
      "int dim=0)",
      infer_split_sizes, split_vjp);
SPLIT(chunk, "chunk(Tensor(a -> *) self, int chunks, int dim=0)", infer_chunk,
      split_vjp);
SPLIT(unbind_int, "unbind.int(Tensor(a -> *) self, int dim=0)", infer_unbind,
      unbind_vjp);
