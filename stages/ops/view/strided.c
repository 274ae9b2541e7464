// SPDX-License-Identifier: Apache-2.0
/* Windows by strides: diagonal, unfold, as_strided. Their gradients sum
 * overlapping elements. */
#include "stages/base/checked.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

#include <string.h>

#define VIEW(id, text, bits, how, back)                                        \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor(a)",                               \
        .flags = PST_OP_VIEW | (bits),                                         \
        .infer = how,                                                          \
        .vjp = back,                                                           \
    }

/* --- diagonal, as_strided ------------------------------------------------- */

static enum pst_status infer_diagonal(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta view;
    unsigned a, b;
    int64_t shift = c->args[1].i, length, offset;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &a);
    if (status == PST_OK)
        status = pst_infer_dim(c, 3, x, &b);
    if (status != PST_OK)
        return status;
    if (a == b || x->rank < 2)
        return pst_infer_fail(c, "needs two different dimensions");
    if (shift >= 0) {
        shift = PST_MIN(shift, x->size[b]);
        length = PST_MIN(x->size[a], x->size[b] - shift);
        offset = shift * x->stride[b];
    } else {
        shift = shift < -x->size[a] ? x->size[a] : -shift;
        length = PST_MIN(x->size[a] - shift, x->size[b]);
        offset = shift * x->stride[a];
    }
    view = pst_view_drop(x, PST_MAX(a, b));
    view = pst_view_drop(&view, PST_MIN(a, b));
    view.size[view.rank] = length;
    view.stride[view.rank++] = x->stride[a] + x->stride[b];
    return pst_infer_view(c, 0, 0, &view,
                          pst_meta_numel(&view) > 0 ? offset : 0);
}

/* storage_offset counts from the start of the storage, not of the view. */
static enum pst_status infer_as_strided(struct pst_infer *c)
{
    const struct pst_arg *size = &c->args[1], *stride = &c->args[2];
    const struct pst_meta *x;
    struct pst_meta view = {.rank = size->n};
    int64_t offset = 0;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (size->n != stride->n || size->n > PST_MAX_RANK)
        return pst_infer_fail(c, "%u sizes, %u strides", size->n, stride->n);
    view.dtype = x->dtype;
    for (unsigned d = 0; d < size->n; d++) {
        view.size[d] = size->ints[d];
        view.stride[d] = stride->ints[d];
        if (view.size[d] < 0 || view.stride[d] < 0)
            return pst_infer_fail(c, "negative sizes or strides");
    }
    if (c->args[3].kind == PST_ARG_INT &&
        PST_SUB(c->args[3].i, c->args[0].value->offset, &offset))
        return pst_infer_fail(c, "offset %lld", (long long)c->args[3].i);
    return pst_infer_view(c, 0, 0, &view, offset);
}

/* Returns zeros of x's shape, contiguous, with g added to the window that
 * `view` and `offset` describe; overlapping elements are summed. */
static struct pst_value *emit_scatter(struct pst_vjp *v,
                                      const struct pst_meta *x,
                                      struct pst_value *g,
                                      const struct pst_meta *view,
                                      int64_t offset)
{
    return pst_vjp_emit(v, &pst_op_scatter_strided,
                        PST_ARGS(pst_v(g), pst_ints(x->size, x->rank),
                                 pst_ints(view->size, view->rank),
                                 pst_ints(view->stride, view->rank),
                                 pst_i(offset)));
}

static enum pst_status diagonal_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    struct pst_meta flat = *x, view = pst_vjp_out(v, 0)->meta;
    const int a = pst_meta_dim(x, args[2].i), b = pst_meta_dim(x, args[3].i);
    unsigned d = 0;

    pst_meta_set_contiguous(&flat);
    for (int k = 0; k < (int)x->rank; k++)
        if (k != a && k != b)
            view.stride[d++] = flat.stride[k];
    view.stride[d] = flat.stride[a] + flat.stride[b];
    return pst_vjp_set(v, 0,
                       emit_scatter(v, x, pst_vjp_grad(v, 0), &view,
                                    pst_meta_numel(&view) == 0 ? 0
                                    : args[1].i >= 0
                                        ? args[1].i * flat.stride[b]
                                        : -args[1].i * flat.stride[a]));
}

/* --- unfold --------------------------------------------------------------- */

/* Returns the view of windows of `size` along a dimension, `step` apart; the
 * elements of a window are in a new last dimension. */
static struct pst_meta unfold_window(const struct pst_meta *x,
                                     const struct pst_arg *args, unsigned dim)
{
    const int64_t size = args[2].i, step = args[3].i;
    const int64_t stride = x->rank > 0 ? x->stride[dim] : 1;
    struct pst_meta view = *x;

    if (x->rank > 0) {
        view.size[dim] = (x->size[dim] - size) / step + 1;
        view.stride[dim] = stride * step;
    }
    view.size[view.rank] = size;
    view.stride[view.rank++] = stride;
    return view;
}

static enum pst_status infer_unfold(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta view;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == PST_MAX_RANK || c->args[3].i < 1 || c->args[2].i < 0 ||
        c->args[2].i > (x->rank > 0 ? x->size[dim] : 1))
        return pst_infer_fail(c, "size %lld, step %lld",
                              (long long)c->args[2].i, (long long)c->args[3].i);
    view = unfold_window(x, c->args, dim);
    return pst_infer_view(c, 0, 0, &view, 0);
}

static enum pst_status unfold_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    struct pst_meta flat = *x;

    pst_meta_set_contiguous(&flat);
    flat = unfold_window(&flat, args, (unsigned)pst_meta_dim(x, args[1].i));
    return pst_vjp_set(v, 0, emit_scatter(v, x, pst_vjp_grad(v, 0), &flat, 0));
}

/* Returns the number of elements from the start of the storage to the end of
 * v. */
static int64_t storage_end(const struct pst_value *v)
{
    return v->offset +
           (int64_t)(pst_meta_span(&v->meta) / pst_dtype_size(v->meta.dtype));
}

/* True if elements of the window overlap. None do if each dimension, by
 * ascending stride, steps over all elements that the previous ones reach. */
static bool shares_memory(const struct pst_meta *m)
{
    int64_t span = 0;
    bool seen[PST_MAX_RANK] = {false};

    for (unsigned k = 0; k < m->rank; k++) {
        int next = -1;

        for (unsigned d = 0; d < m->rank; d++)
            if (!seen[d] && (next < 0 || m->stride[d] < m->stride[next]))
                next = (int)d;
        seen[next] = true;
        if (m->size[next] <= 1)
            continue;
        if (m->stride[next] <= span)
            return true;
        span += m->stride[next] * (m->size[next] - 1);
    }
    return false;
}

/* As in PyTorch, gradients are summed in the storage that spans the windows of
 * x and y; then x reads its window. Gradients outside of it are lost, and
 * elements of x that overlap share their sum evenly. */
static struct pst_value *through_storage(struct pst_vjp *v, struct pst_value *x,
                                         struct pst_value *y)
{
    const int64_t first = PST_MIN(x->offset, y->offset);
    const int64_t n = PST_MAX(storage_end(x), storage_end(y)) - first;
    const struct pst_meta storage = pst_meta_make(x->meta.dtype, 1, &n);
    struct pst_value *g = emit_scatter(v, &storage, pst_vjp_grad(v, 0),
                                       &y->meta, y->offset - first);

    if (shares_memory(&x->meta)) {
        struct pst_value *count =
            emit_scatter(v, &storage, pst_vjp_full(v, &x->meta, 1.0), &x->meta,
                         x->offset - first);

        if (count != NULL)
            count = pst_vjp_emit(v, &pst_op_clamp_min,
                                 PST_ARGS(pst_v(count), pst_i(1)));
        g = pst_vjp_div(v, g, count);
    }
    return pst_vjp_emit(v, &pst_op_read_strided,
                        PST_ARGS(pst_v(g), pst_ints(x->meta.size, x->meta.rank),
                                 pst_ints(x->meta.stride, x->meta.rank),
                                 pst_i(x->offset - first)));
}

static enum pst_status as_strided_vjp(struct pst_vjp *v)
{
    struct pst_value *x = pst_vjp_in(v, 0), *y = pst_vjp_out(v, 0);
    struct pst_value *g;

    if (pst_meta_numel(&y->meta) == 0 || pst_meta_numel(&x->meta) == 0)
        g = pst_vjp_zeros_like(v, x);
    else if (pst_meta_is_contiguous(&x->meta) && y->offset >= x->offset &&
             storage_end(y) <= storage_end(x))
        g = emit_scatter(v, &x->meta, pst_vjp_grad(v, 0), &y->meta,
                         y->offset - x->offset);
    else
        g = through_storage(v, x, y);
    return pst_vjp_set(v, 0, g);
}

/* Infers the result of resize_: the first elements of the storage,
 * contiguous. */
static enum pst_status infer_shrink(struct pst_infer *c)
{
    const struct pst_arg *size = &c->args[1];
    const struct pst_meta *x;
    struct pst_meta view;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (size->n > PST_MAX_RANK)
        return pst_infer_fail(c, "%u sizes", size->n);
    if (size->n == x->rank &&
        memcmp(size->ints, x->size, x->rank * sizeof(*x->size)) == 0)
        return pst_infer_view(c, 0, 0, x, 0);
    for (unsigned d = 0; d < size->n; d++)
        if (size->ints[d] < 0)
            return pst_infer_fail(c, "negative sizes");
    view = pst_meta_make(x->dtype, size->n, size->ints);
    status = pst_meta_check(&view, c->diag);
    if (status != PST_OK)
        return status;
    if (pst_meta_numel(&view) > pst_meta_numel(x))
        return pst_infer_fail(c, "more elements than the tensor has: PyTorch "
                                 "leaves the new ones undefined");
    return pst_infer_view(c, 0, 0, &view, 0);
}

VIEW(unfold, "unfold(Tensor(a) self, int dimension, int size, int step)", 0,
     infer_unfold, unfold_vjp);
VIEW(diagonal, "diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1)",
     0, infer_diagonal, diagonal_vjp);
VIEW(as_strided,
     "as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, "
     "SymInt? storage_offset=None)",
     PST_OP_STORAGE, infer_as_strided, as_strided_vjp);

const struct pst_op pst_op_shrink = {
    .schema = "penstock::shrink(Tensor(a) self, SymInt[] size, *, "
              "MemoryFormat? memory_format=None) -> Tensor(a)",
    .flags = PST_OP_VIEW | PST_OP_STORAGE,
    .infer = infer_shrink,
    .vjp = as_strided_vjp,
};
