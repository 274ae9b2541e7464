// SPDX-License-Identifier: Apache-2.0
/* transpose, permute, movedim and expand. */
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

/* Sets result 0 to argument 0 with dimension order[d] at position d. */
static enum pst_status set_permuted(struct pst_infer *c,
                                    const struct pst_meta *x,
                                    const unsigned *order)
{
    struct pst_meta view = *x;

    for (unsigned d = 0; d < x->rank; d++) {
        view.size[d] = x->size[order[d]];
        view.stride[d] = x->stride[order[d]];
    }
    return pst_infer_view(c, 0, 0, &view, 0);
}

static void identity(unsigned order[PST_MAX_RANK])
{
    for (unsigned d = 0; d < PST_MAX_RANK; d++)
        order[d] = d;
}

static void swap(unsigned *order, unsigned a, unsigned b)
{
    const unsigned kept = order[a];

    order[a] = order[b];
    order[b] = kept;
}

static enum pst_status infer_transpose(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK], a, b;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &a);
    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &b);
    if (status != PST_OK)
        return status;
    identity(order);
    swap(order, a, b);
    return set_permuted(c, x, order);
}

static enum pst_status infer_t(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank > 2)
        return pst_infer_fail(c, "%u dimensions, at most 2 are possible",
                              x->rank);
    identity(order);
    if (x->rank == 2)
        swap(order, 0, 1);
    return set_permuted(c, x, order);
}

static enum pst_status infer_mT(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank < 2)
        return pst_infer_fail(c, "needs at least 2 dimensions");
    identity(order);
    swap(order, x->rank - 2, x->rank - 1);
    return set_permuted(c, x, order);
}

static enum pst_status infer_numpy_T(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < x->rank; d++)
        order[d] = x->rank - 1 - d;
    return set_permuted(c, x, order);
}

/* Reads argument 1 as a permutation of the dimensions of x. */
static enum pst_status read_order(struct pst_infer *c, const struct pst_meta *x,
                                  unsigned order[PST_MAX_RANK])
{
    const struct pst_arg *dims = &c->args[1];
    unsigned seen = 0;

    if (dims->n != x->rank)
        return pst_infer_fail(c, "%u dimensions are named, the tensor has %u",
                              dims->n, x->rank);
    for (unsigned d = 0; d < dims->n; d++) {
        enum pst_status status =
            pst_infer_dim_at(c, dims->ints[d], x, &order[d]);

        if (status != PST_OK)
            return status;
        if ((seen & 1u << order[d]) != 0)
            return pst_infer_fail(c, "dimension %u is named twice", order[d]);
        seen |= 1u << order[d];
    }
    return PST_OK;
}

static enum pst_status infer_permute(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = read_order(c, x, order);
    return status != PST_OK ? status : set_permuted(c, x, order);
}

static void move_dimension(unsigned rank, unsigned from, unsigned to,
                           unsigned order[PST_MAX_RANK])
{
    unsigned next = 0;

    for (unsigned d = 0; d < rank; d++) {
        if (next == from)
            next++;
        order[d] = d == to ? from : next++;
    }
}

static enum pst_status infer_movedim(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned order[PST_MAX_RANK] = {0}, from, to;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &from);
    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &to);
    if (status != PST_OK)
        return status;
    move_dimension(x->rank, from, to, order);
    return set_permuted(c, x, order);
}

/* The gradient of the operator is the operator applied to g. */
static enum pst_status transpose_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(v, 0,
                       pst_vjp_transpose(v, pst_vjp_grad(v, 0),
                                         v->node->args[1].i,
                                         v->node->args[2].i));
}

static enum pst_status t_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (pst_vjp_in(v, 0)->meta.rank == 2)
        g = pst_vjp_transpose(v, g, 0, 1);
    return pst_vjp_set(v, 0, g);
}

static enum pst_status mT_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(v, 0, pst_vjp_transpose(v, pst_vjp_grad(v, 0), -2, -1));
}

static enum pst_status numpy_T_vjp(struct pst_vjp *v)
{
    const unsigned rank = pst_vjp_in(v, 0)->meta.rank;
    int64_t dims[PST_MAX_RANK];

    for (unsigned d = 0; d < rank; d++)
        dims[d] = (int64_t)rank - 1 - d;
    return pst_vjp_set(v, 0,
                       pst_vjp_permute(v, pst_vjp_grad(v, 0), dims, rank));
}

static enum pst_status permute_vjp(struct pst_vjp *v)
{
    const struct pst_arg *dims = &v->node->args[1];
    const int64_t rank = dims->n;
    int64_t inverse[PST_MAX_RANK];

    for (int64_t d = 0; d < rank; d++) {
        const int64_t from = dims->ints[d];

        inverse[from < 0 ? from + rank : from] = d;
    }
    return pst_vjp_set(
        v, 0, pst_vjp_permute(v, pst_vjp_grad(v, 0), inverse, dims->n));
}

static enum pst_status movedim_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_movedim_int,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[2],
                              v->node->args[1])));
}

PST_VIEW_ROW(transpose_int, "transpose.int(Tensor(a) self, int dim0, int dim1)",
             infer_transpose, transpose_vjp);
PST_VIEW_ROW(t, "t(Tensor(a) self)", infer_t, t_vjp);
PST_VIEW_ROW(mT, "mT(Tensor(a) self)", infer_mT, mT_vjp);
PST_VIEW_ROW(numpy_T, "numpy_T(Tensor(a) self)", infer_numpy_T, numpy_T_vjp);
PST_VIEW_ROW(permute, "permute(Tensor(a) self, int[] dims)", infer_permute,
             permute_vjp);
PST_VIEW_ROW(movedim_int,
             "movedim.int(Tensor(a) self, int source, int destination)",
             infer_movedim, movedim_vjp);

/* --- expand --------------------------------------------------------------- */

/* Sets *ret to x expanded to `sizes`, as a view; size -1 keeps that of x. */
static enum pst_status expand_view(struct pst_infer *c, unsigned k,
                                   const struct pst_meta *x, unsigned rank,
                                   const int64_t *sizes, struct pst_meta *ret)
{
    struct pst_meta view = {.dtype = x->dtype, .rank = rank};
    const unsigned added = rank - x->rank;
    char text[PST_META_TEXT];

    if (rank > PST_MAX_RANK || rank < x->rank)
        return pst_infer_fail(c, "%s cannot expand to %u dimensions",
                              pst_meta_text(x, text), rank);
    for (unsigned d = 0; d < rank; d++) {
        const bool old = d >= added;
        const int64_t has = old ? x->size[d - added] : 1;

        view.size[d] = old && sizes[d] == -1 ? has : sizes[d];
        if (view.size[d] < 0 || (view.size[d] != has && has != 1))
            return pst_infer_fail(
                c, "dimension %u of %s cannot expand to %lld (result %u)", d,
                pst_meta_text(x, text), (long long)sizes[d], k);
        view.stride[d] = old && view.size[d] == has ? x->stride[d - added] : 0;
    }
    *ret = view;
    return PST_OK;
}

static enum pst_status expand_to(struct pst_infer *c, unsigned rank,
                                 const int64_t *sizes)
{
    const struct pst_meta *x;
    struct pst_meta view;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = expand_view(c, 0, x, rank, sizes, &view);
    return status != PST_OK ? status : pst_infer_view(c, 0, 0, &view, 0);
}

static enum pst_status infer_expand(struct pst_infer *c)
{
    return expand_to(c, c->args[1].n, c->args[1].ints);
}

static enum pst_status infer_expand_as(struct pst_infer *c)
{
    const struct pst_meta *other;
    enum pst_status status = pst_infer_tensor(c, 1, &other);

    return status != PST_OK ? status : expand_to(c, other->rank, other->size);
}

static enum pst_status expand_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0, pst_vjp_sum_to(v, pst_vjp_grad(v, 0), &pst_vjp_in(v, 0)->meta));
}

PST_VIEW_ROW(expand,
             "expand(Tensor(a) self, SymInt[] size, *, bool implicit=False)",
             infer_expand, expand_vjp);
PST_VIEW_ROW(broadcast_to, "broadcast_to(Tensor(a) self, SymInt[] size)",
             infer_expand, expand_vjp);
PST_VIEW_ROW(expand_as, "expand_as(Tensor(a) self, Tensor other)",
             infer_expand_as, expand_vjp);

/* Infers one result for each tensor of the list, a view of that tensor. */
static enum pst_status infer_broadcast_tensors(struct pst_infer *c)
{
    const struct pst_arg *list = &c->args[0];
    struct pst_meta to = {.rank = 0};

    if (list->n > PST_MAX_OUTS)
        return pst_infer_refuse(c, "more than %d tensors", PST_MAX_OUTS);
    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_meta so_far = to;
        char text[2][PST_META_TEXT];

        if (!pst_meta_broadcast(&so_far, &list->values[k]->meta, &to))
            return pst_infer_fail(
                c, "%s does not broadcast with %s",
                pst_meta_text(&list->values[k]->meta, text[0]),
                pst_meta_text(&so_far, text[1]));
    }
    c->n_outs = list->n;
    for (unsigned k = 0; k < list->n; k++) {
        enum pst_status status = expand_view(c, k, &list->values[k]->meta,
                                             to.rank, to.size, &c->out[k]);

        if (status != PST_OK)
            return status;
        c->alias_of[k] = list->values[k];
        c->offset[k] = 0;
    }
    return PST_OK;
}

static enum pst_status broadcast_tensors_vjp(struct pst_vjp *v)
{
    const struct pst_arg *list = &v->node->args[0];

    for (unsigned k = 0; k < list->n; k++)
        if (v->needs[k] && pst_vjp_grad(v, k) != NULL)
            (void)pst_vjp_set(
                v, k,
                pst_vjp_sum_to(v, pst_vjp_grad(v, k), &list->values[k]->meta));
    return v->build.status;
}

const struct pst_op pst_op_broadcast_tensors = {
    .schema = "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]",
    .flags = PST_OP_MAYBE_VIEW,
    .infer = infer_broadcast_tensors,
    .vjp = broadcast_tensors_vjp,
};
PST_CPU_KERNELS(broadcast_tensors, pst_view_copy_kernels);
