// SPDX-License-Identifier: Apache-2.0
/* view, reshape, flatten, squeeze ...: other sizes for the same elements. The
 * result is a view of the input if its strides allow that, else a copy. */
#include "stages/base/checked.h"
#include "stages/ops/view/view.h"

#include <string.h>

/*
 * Sets *ret to a view of the storage of `from` with `sizes`, which have the
 * same number of elements; false if no strides allow it. From the right, old
 * dimensions that are contiguous with each other form a run (size 1 never ends
 * a run), and new dimensions divide the run. New dimensions of size 1 have the
 * same strides as in PyTorch.
 */
static bool view_of_sizes(const struct pst_meta *from, unsigned rank,
                          const int64_t *sizes, struct pst_meta *ret)
{
    int64_t step, have = 1, want = 1; /* elements of the run: old, new */
    int e = (int)rank - 1;

    *ret = pst_meta_make(from->dtype, rank, sizes);
    if (pst_meta_numel(from) == 0 || from->rank == 0)
        return true;
    step = from->stride[from->rank - 1];
    for (unsigned d = from->rank; d-- > 0;) {
        have *= from->size[d];
        if (d > 0 &&
            (from->size[d - 1] == 1 || from->stride[d - 1] == have * step))
            continue;
        for (; e >= 0 && (want < have || sizes[e] == 1); want *= sizes[e--])
            ret->stride[e] = want * step;
        if (want != have)
            return false;
        if (d > 0)
            step = from->stride[d - 1];
        have = want = 1;
    }
    return e < 0;
}

/* Copies `sizes` to ret; replaces -1 by the number of remaining elements. */
static enum pst_status resolve_sizes(struct pst_infer *c,
                                     const struct pst_meta *x, unsigned rank,
                                     const int64_t *sizes,
                                     int64_t ret[PST_MAX_RANK])
{
    const int64_t numel = pst_meta_numel(x);
    char text[PST_META_TEXT];
    int64_t known = 1;
    int hole = -1;

    if (rank > PST_MAX_RANK)
        return pst_infer_fail(c, "%u dimensions, at most %d are possible", rank,
                              PST_MAX_RANK);
    for (unsigned d = 0; d < rank; d++) {
        ret[d] = sizes[d];
        if (sizes[d] == -1 && hole < 0) {
            hole = (int)d;
            continue;
        }
        if (sizes[d] < 0 || PST_MUL(known, sizes[d], &known))
            return pst_infer_fail(c, "size %lld of dimension %u is impossible",
                                  (long long)sizes[d], d);
    }
    if (hole >= 0) {
        if (known == 0 || numel % known != 0)
            return pst_infer_fail(c, "the sizes do not fit %s",
                                  pst_meta_text(x, text));
        ret[hole] = numel / known;
        known = numel;
    }
    if (known != numel)
        return pst_infer_fail(c, "%lld elements wanted, %s has %lld",
                              (long long)known, pst_meta_text(x, text),
                              (long long)numel);
    return PST_OK;
}

/* Sets result 0 to argument 0 with these sizes (one may be -1): a view if
 * possible, else contiguous. */
static enum pst_status infer_sizes(struct pst_infer *c, unsigned rank,
                                   const int64_t *sizes)
{
    int64_t to[PST_MAX_RANK];
    const struct pst_meta *x;
    struct pst_meta view;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = resolve_sizes(c, x, rank, sizes, to);
    if (status != PST_OK)
        return status;
    if (view_of_sizes(x, rank, to, &view))
        return pst_infer_view(c, 0, 0, &view, 0);
    return pst_infer_set(c, 0, x->dtype, rank, to);
}

static enum pst_status reshape_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_reshape_as(v, pst_vjp_grad(v, 0), &pst_vjp_in(v, 0)->meta));
}

/* --- sizes from the arguments --------------------------------------------- */

static enum pst_status infer_view(struct pst_infer *c)
{
    return infer_sizes(c, c->args[1].n, c->args[1].ints);
}

static enum pst_status infer_view_as(struct pst_infer *c)
{
    const struct pst_meta *other;
    enum pst_status status = pst_infer_tensor(c, 1, &other);

    return status != PST_OK ? status : infer_sizes(c, other->rank, other->size);
}

static enum pst_status infer_flatten(struct pst_infer *c)
{
    int64_t sizes[PST_MAX_RANK] = {1};
    const struct pst_meta *x;
    unsigned first, last, rank = 0;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &first);
    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &last);
    if (status != PST_OK)
        return status;
    if (x->rank == 0)
        return infer_sizes(c, 1, sizes);
    if (first > last)
        return pst_infer_fail(c, "start_dim %u is after end_dim %u", first,
                              last);
    for (unsigned d = 0; d < x->rank; d++) {
        if (d > first && d <= last)
            sizes[rank - 1] *= x->size[d];
        else
            sizes[rank++] = x->size[d];
    }
    return infer_sizes(c, rank, sizes);
}

static enum pst_status infer_unflatten(struct pst_infer *c)
{
    const struct pst_arg *to = &c->args[2];
    int64_t sizes[PST_MAX_RANK], known = 1;
    const struct pst_meta *x;
    unsigned dim, rank = 0;
    int hole = -1;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == 0 || to->n == 0 || x->rank - 1 + to->n > PST_MAX_RANK)
        return pst_infer_fail(c, "dimension %u cannot become %u dimensions",
                              dim, to->n);
    for (unsigned d = 0; d < x->rank; d++) {
        if (d != dim) {
            sizes[rank++] = x->size[d];
            continue;
        }
        for (unsigned k = 0; k < to->n; k++) {
            if (to->ints[k] == -1 && hole < 0)
                hole = (int)rank;
            else if (to->ints[k] < 0 || PST_MUL(known, to->ints[k], &known))
                return pst_infer_fail(c, "size %lld is impossible",
                                      (long long)to->ints[k]);
            sizes[rank++] = to->ints[k];
        }
    }
    if (hole >= 0 && known > 0) {
        sizes[hole] = x->size[dim] / known;
        known *= sizes[hole];
    }
    if (known != x->size[dim])
        return pst_infer_fail(c, "the sizes do not multiply to %lld",
                              (long long)x->size[dim]);
    return infer_sizes(c, rank, sizes);
}

#define RESHAPE(id, text, how)                                                 \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .flags = PST_OP_MAYBE_VIEW | PST_OP_PASSES_ON,                         \
        .infer = how,                                                          \
        .vjp = reshape_vjp,                                                    \
    };                                                                         \
    PST_CPU_KERNELS(id, pst_view_copy_kernels)

RESHAPE(view, "view(Tensor(a) self, SymInt[] size) -> Tensor(a)", infer_view);
RESHAPE(_unsafe_view, "_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
        infer_view);
RESHAPE(reshape, "reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)",
        infer_view);
RESHAPE(view_as, "view_as(Tensor(a) self, Tensor other) -> Tensor(a)",
        infer_view_as);
RESHAPE(reshape_as, "reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)",
        infer_view_as);
RESHAPE(flatten_using_ints,
        "flatten.using_ints(Tensor(a) self, int start_dim=0, "
        "int end_dim=-1) -> Tensor(a)",
        infer_flatten);
RESHAPE(unflatten_int,
        "unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)",
        infer_unflatten);

/* --- dimensions of size 1 ------------------------------------------------- */

struct pst_meta pst_view_drop(const struct pst_meta *meta, unsigned d)
{
    struct pst_meta m = *meta;

    m.rank--;
    memmove(&m.size[d], &m.size[d + 1], (m.rank - d) * sizeof(m.size[0]));
    memmove(&m.stride[d], &m.stride[d + 1], (m.rank - d) * sizeof(m.size[0]));
    return m;
}

static enum pst_status infer_unsqueeze(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta view, taller;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank == PST_MAX_RANK)
        return pst_infer_fail(c, "more than %d dimensions", PST_MAX_RANK);
    taller = *x;
    taller.rank++;
    taller.size[x->rank] = 1;
    status = pst_infer_dim(c, 1, &taller, &dim);
    if (status != PST_OK)
        return status;
    view = taller;
    for (unsigned d = x->rank; d > dim; d--) {
        view.size[d] = x->size[d - 1];
        view.stride[d] = x->stride[d - 1];
    }
    view.size[dim] = 1;
    view.stride[dim] =
        dim < x->rank ? x->size[dim] * x->stride[dim] : (int64_t)1;
    return pst_infer_view(c, 0, 0, &view, 0);
}

static enum pst_status set_squeezed(struct pst_infer *c,
                                    const struct pst_meta *x, const bool *dims)
{
    struct pst_meta view = *x;

    for (unsigned d = x->rank; d-- > 0;)
        if (dims[d] && x->size[d] == 1)
            view = pst_view_drop(&view, d);
    return pst_infer_view(c, 0, 0, &view, 0);
}

static enum pst_status infer_squeeze(struct pst_infer *c)
{
    const struct pst_meta *x;
    bool dims[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    memset(dims, true, sizeof(dims));
    return status != PST_OK ? status : set_squeezed(c, x, dims);
}

static enum pst_status infer_squeeze_dim(struct pst_infer *c)
{
    const struct pst_meta *x;
    bool dims[PST_MAX_RANK] = {false};
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    dims[dim] = true;
    return set_squeezed(c, x, dims);
}

static enum pst_status infer_squeeze_dims(struct pst_infer *c)
{
    const struct pst_meta *x;
    bool dims[PST_MAX_RANK] = {false};
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    for (unsigned k = 0; status == PST_OK && k < c->args[1].n; k++) {
        unsigned dim;

        status = pst_infer_dim_at(c, c->args[1].ints[k], x, &dim);
        if (status == PST_OK)
            dims[dim] = true;
    }
    return status != PST_OK ? status : set_squeezed(c, x, dims);
}

#define VIEW(id, text, how)                                                    \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor(a)",                               \
        .flags = PST_OP_VIEW | PST_OP_PASSES_ON,                               \
        .infer = how,                                                          \
        .vjp = reshape_vjp,                                                    \
    }

VIEW(unsqueeze, "unsqueeze(Tensor(a) self, int dim)", infer_unsqueeze);
VIEW(squeeze, "squeeze(Tensor(a) self)", infer_squeeze);
VIEW(squeeze_dim, "squeeze.dim(Tensor(a) self, int dim)", infer_squeeze_dim);
VIEW(squeeze_dims, "squeeze.dims(Tensor(a) self, int[] dim)",
     infer_squeeze_dims);
