// SPDX-License-Identifier: Apache-2.0
/* Copies of a tensor in which a window is overwritten. Functionalisation turns
 * writes to views into such copies. Sizes, strides and an offset, in the
 * row-major order of the tensor, describe a window. */
#include "stages/base/checked.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

#include <string.h>

/* Copies in[0] to out[0], then in[1] into the window of out[0]. */
static void write_window(const struct pst_call *c, bool reference,
                         const struct pst_meta *window, int64_t offset)
{
    char *at = (char *)c->out[0].data +
               offset * (int64_t)pst_dtype_size(window->dtype);

    if (reference) {
        pst_view_copy_ref(c->in[0].meta, c->in[0].data, c->out[0].meta,
                          c->out[0].data, false);
        pst_view_copy_ref(c->in[1].meta, c->in[1].data, window, at, false);
    } else {
        if (c->out[0].data != c->in[0].data)
            pst_view_copy(c->pool, c->in[0].meta, c->in[0].data, c->out[0].meta,
                          c->out[0].data, false);
        pst_view_copy(c->pool, c->in[1].meta, c->in[1].data, window, at, false);
    }
}

/* Defines kernels ID and ID_ref, which call ID_into(call, reference). ID can
 * run in place: in[0] may be the memory of out[0]. */
#define WRITES (PST_K_INPLACE_0 | PST_K_COPIES)
#define KERNELS(id)                                                            \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        id##_into(c, false);                                                   \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        id##_into(c, true);                                                    \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#id, PST_ISA_ANY, PST_D_ANY,                                          \
         PST_K_STRIDED | WRITES | PST_VIEW_IS_COPIES, NULL, NULL, id##_run,    \
         0.0},                                                                 \
        {#id "_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,        \
         id##_ref, 0.0},                                                       \
    }

/* Sets result 0 like argument 0; argument 1 must have the sizes of the
 * window. */
static enum pst_status infer_overwrite(struct pst_infer *c,
                                       const struct pst_meta *window)
{
    const struct pst_meta *src;
    char text[2][PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 1, &src);

    if (status == PST_OK && !pst_meta_same_shape(src, window))
        return pst_infer_fail(c, "%s does not fit the window %s",
                              pst_meta_text(src, text[0]),
                              pst_meta_text(window, text[1]));
    return status != PST_OK
               ? status
               : pst_infer_set_like(c, 0, pst_infer_in(c, 0)->dtype,
                                    pst_infer_in(c, 0));
}

/* --- slice_scatter, select_scatter ---------------------------------------- */

static struct pst_meta slice_window(const struct pst_meta *x,
                                    const struct pst_arg *args, int64_t *offset)
{
    const unsigned dim = (unsigned)pst_meta_dim(x, args[2].i);
    const struct pst_slice s =
        pst_view_slice(x->size[dim], &args[3], &args[4], args[5].i);
    struct pst_meta window = *x;

    *offset = s.length > 0 ? s.start * x->stride[dim] : 0;
    window.size[dim] = s.length;
    window.stride[dim] *= s.step;
    return window;
}

static struct pst_meta select_window(const struct pst_meta *x,
                                     const struct pst_arg *args,
                                     int64_t *offset)
{
    const unsigned dim = (unsigned)pst_meta_dim(x, args[2].i);
    const int64_t at = args[3].i;

    *offset = (at < 0 ? at + x->size[dim] : at) * x->stride[dim];
    return pst_view_drop(x, dim);
}

static enum pst_status infer_slice_scatter(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta window;
    unsigned dim;
    int64_t offset;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == 0 || c->args[5].i < 1)
        return pst_infer_fail(c, "needs a dimension and a positive step");
    window = slice_window(x, c->args, &offset);
    return infer_overwrite(c, &window);
}

static enum pst_status infer_select_scatter(struct pst_infer *c)
{
    const int64_t at = c->args[3].i;
    const struct pst_meta *x;
    struct pst_meta window;
    unsigned dim;
    int64_t offset;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == 0 || at < -x->size[dim] || at >= x->size[dim])
        return pst_infer_fail(c, "index %lld is out of range", (long long)at);
    window = select_window(x, c->args, &offset);
    return infer_overwrite(c, &window);
}

static void slice_scatter_into(const struct pst_call *c, bool reference)
{
    int64_t offset;
    const struct pst_meta window =
        slice_window(c->out[0].meta, c->args, &offset);

    write_window(c, reference, &window, offset);
}

static void select_scatter_into(const struct pst_call *c, bool reference)
{
    int64_t offset;
    const struct pst_meta window =
        select_window(c->out[0].meta, c->args, &offset);

    write_window(c, reference, &window, offset);
}

/* The gradient of the base is g with zeros in the window, that of the source is
 * the window of g. `reader` is the operator that reads the window; its
 * arguments are those after the source. */
static enum pst_status scatter_vjp(struct pst_vjp *v,
                                   const struct pst_op *reader)
{
    const struct pst_node *node = v->node;
    struct pst_value *g = pst_vjp_grad(v, 0), *part;
    struct pst_arg args[6];
    const unsigned n = node->schema->n_args;

    if (pst_vjp_needs(v, 0)) {
        for (unsigned k = 0; k < n; k++)
            args[k] = node->args[k];
        args[0] = pst_v(g);
        args[1] = pst_v(pst_vjp_zeros_like(v, pst_vjp_in(v, 1)));
        (void)pst_vjp_set(v, 0, pst_vjp_emit(v, node->op, args, n));
    }
    if (pst_vjp_needs(v, 1)) {
        args[0] = pst_v(g);
        for (unsigned k = 2; k < n; k++)
            args[k - 1] = node->args[k];
        part = pst_vjp_emit(v, reader, args, n - 1);
        (void)pst_vjp_set(v, 1,
                          pst_vjp_cast(v, part, pst_vjp_in(v, 1)->meta.dtype));
    }
    return v->build.status;
}

static enum pst_status slice_scatter_vjp(struct pst_vjp *v)
{
    return scatter_vjp(v, &pst_op_slice_Tensor);
}

static enum pst_status select_scatter_vjp(struct pst_vjp *v)
{
    return scatter_vjp(v, &pst_op_select_int);
}

KERNELS(slice_scatter);
KERNELS(select_scatter);

const struct pst_op pst_op_slice_scatter = {
    .schema = "aten::slice_scatter(Tensor self, Tensor src, int dim=0, "
              "SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
    .infer = infer_slice_scatter,
    .vjp = slice_scatter_vjp,
};
PST_CPU_KERNELS(slice_scatter, slice_scatter_kernels);

const struct pst_op pst_op_select_scatter = {
    .schema = "aten::select_scatter(Tensor self, Tensor src, int dim, "
              "SymInt index) -> Tensor",
    .infer = infer_select_scatter,
    .vjp = select_scatter_vjp,
};
PST_CPU_KERNELS(select_scatter, select_scatter_kernels);

/* --- windows by strides --------------------------------------------------- */

/* Returns the window that args give: sizes, strides, offset. */
static struct pst_meta strided_window(enum pst_dtype dtype,
                                      const struct pst_arg *args)
{
    struct pst_meta window = {.dtype = dtype, .rank = args[0].n};

    for (unsigned d = 0; d < args[0].n; d++) {
        window.size[d] = args[0].ints[d];
        window.stride[d] = args[1].ints[d];
    }
    return window;
}

/* Checks that the window lies within `numel` elements. */
static enum pst_status check_strided(struct pst_infer *c, unsigned first,
                                     int64_t numel, struct pst_meta *ret)
{
    const struct pst_arg *args = &c->args[first];
    int64_t last = args[2].i;

    if (args[0].n != args[1].n || args[0].n > PST_MAX_RANK)
        return pst_infer_fail(c, "%u sizes, %u strides", args[0].n, args[1].n);
    for (unsigned d = 0; d < args[0].n; d++) {
        int64_t reach;

        if (args[0].ints[d] < 0 || args[1].ints[d] < 0 ||
            PST_MUL(PST_MAX(args[0].ints[d], 1) - 1, args[1].ints[d], &reach) ||
            PST_ADD(last, reach, &last))
            return pst_infer_fail(c, "size %lld, stride %lld",
                                  (long long)args[0].ints[d],
                                  (long long)args[1].ints[d]);
    }
    *ret = strided_window(PST_F32, args);
    if (pst_meta_numel(ret) > 0 && (args[2].i < 0 || last >= numel))
        return pst_infer_fail(c, "the window reaches outside of %lld elements",
                              (long long)numel);
    return PST_OK;
}

static enum pst_status infer_write_strided(struct pst_infer *c)
{
    const struct pst_meta *base;
    struct pst_meta window;
    enum pst_status status = pst_infer_tensor(c, 0, &base);

    if (status == PST_OK)
        status = check_strided(c, 2, pst_meta_numel(base), &window);
    return status != PST_OK ? status : infer_overwrite(c, &window);
}

static void write_strided_into(const struct pst_call *c, bool reference)
{
    const struct pst_meta window =
        strided_window(c->out[0].meta->dtype, &c->args[2]);

    write_window(c, reference, &window, c->args[4].i);
}

static enum pst_status write_strided_vjp(struct pst_vjp *v)
{
    return scatter_vjp(v, &pst_op_read_strided);
}

KERNELS(write_strided);

const struct pst_op pst_op_write_strided = {
    .schema = "penstock::write_strided(Tensor base, Tensor update, int[] size, "
              "int[] stride, int offset) -> Tensor",
    .infer = infer_write_strided,
    .vjp = write_strided_vjp,
};
PST_CPU_KERNELS(write_strided, write_strided_kernels);

static enum pst_status infer_read_strided(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta window;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = check_strided(c, 1, pst_meta_numel(x), &window);
    return status != PST_OK ? status
                            : pst_infer_set_like(c, 0, x->dtype, &window);
}

static void read_strided_ref(const struct pst_call *c)
{
    const struct pst_meta from =
        strided_window(c->in[0].meta->dtype, &c->args[1]);
    const char *src = (const char *)c->in[0].data +
                      c->args[3].i * (int64_t)pst_dtype_size(from.dtype);

    pst_view_copy_ref(&from, src, c->out[0].meta, c->out[0].data,
                      c->accumulate);
}

static enum pst_status read_strided_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *args = v->node->args;

    return pst_vjp_set(v, 0,
                       pst_vjp_emit(v, &pst_op_scatter_strided,
                                    PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                             pst_ints(x->size, x->rank),
                                             args[1], args[2], args[3])));
}

static void read_strided_run(const struct pst_call *c)
{
    const struct pst_meta from =
        strided_window(c->in[0].meta->dtype, &c->args[1]);

    pst_view_copy(c->pool, &from,
                  (const char *)c->in[0].data +
                      c->args[3].i * (int64_t)pst_dtype_size(from.dtype),
                  c->out[0].meta, c->out[0].data, c->accumulate);
}

/* The kernels need contiguous inputs, because windows refer to the row-major
 * order. */
static const struct pst_kernel read_strided_kernels[] = {
    {"read_strided", PST_ISA_ANY, PST_D_ANY,
     PST_K_ACCUMULATE | PST_VIEW_IS_COPIES, NULL, NULL, read_strided_run, 0.0},
    {"read_strided_ref", PST_ISA_ANY, PST_D_ANY, PST_K_ACCUMULATE, NULL, NULL,
     read_strided_ref, 0.0},
};

const struct pst_op pst_op_read_strided = {
    .schema = "penstock::read_strided(Tensor self, int[] size, int[] stride, "
              "int offset) -> Tensor",
    .infer = infer_read_strided,
    .vjp = read_strided_vjp,
};
PST_CPU_KERNELS(read_strided, read_strided_kernels);

static enum pst_status infer_scatter_strided(struct pst_infer *c)
{
    const struct pst_meta *g;
    struct pst_meta window;
    char text[2][PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = pst_infer_set(c, 0, g->dtype, c->args[1].n, c->args[1].ints);
    if (status == PST_OK)
        status = check_strided(c, 2, pst_meta_numel(&c->out[0]), &window);
    if (status == PST_OK && !pst_meta_same_shape(&window, g))
        return pst_infer_fail(c, "gradient %s, window %s",
                              pst_meta_text(g, text[0]),
                              pst_meta_text(&window, text[1]));
    return status;
}

/* Adds the input to a strided window of the result, which is zeroed first
 * unless c->accumulate. If elements of the window overlap, their values are
 * added one after the other. */
static void scatter_strided_into(const struct pst_call *c, bool reference)
{
    const struct pst_meta window =
        strided_window(c->out[0].meta->dtype, &c->args[2]);
    char *at = (char *)c->out[0].data +
               c->args[4].i * (int64_t)pst_dtype_size(window.dtype);

    if (!c->accumulate)
        memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    if (reference)
        pst_view_copy_ref(c->in[0].meta, c->in[0].data, &window, at, true);
    else
        pst_view_add(c->pool, c->in[0].meta, c->in[0].data, &window, at);
}

static void scatter_strided_run(const struct pst_call *c)
{
    scatter_strided_into(c, false);
}

static void scatter_strided_ref(const struct pst_call *c)
{
    scatter_strided_into(c, true);
}

static enum pst_status scatter_strided_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;

    return pst_vjp_set(v, 0,
                       pst_vjp_emit(v, &pst_op_read_strided,
                                    PST_ARGS(pst_v(pst_vjp_grad(v, 0)), args[2],
                                             args[3], args[4])));
}

static const struct pst_kernel scatter_strided_kernels[] = {
    {"scatter_strided", PST_ISA_ANY, PST_D(F32) | PST_D(F64),
     PST_K_STRIDED | PST_K_ACCUMULATE, NULL, NULL, scatter_strided_run, 0.0},
    {"scatter_strided_ref", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_K_ACCUMULATE, NULL, NULL, scatter_strided_ref, 0.0},
};

const struct pst_op pst_op_scatter_strided = {
    .schema = "penstock::scatter_strided(Tensor grad, int[] base_size, "
              "int[] size, int[] stride, int offset) -> Tensor",
    .infer = infer_scatter_strided,
    .vjp = scatter_strided_vjp,
};
PST_CPU_KERNELS(scatter_strided, scatter_strided_kernels);
