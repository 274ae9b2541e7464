// SPDX-License-Identifier: Apache-2.0
/* gather and scatter: one index for each element along one dimension. */
#include "stages/ops/core/rows.h"
#include "stages/ops/index/along.h"

#include <string.h>

/* --- gather, scatter ------------------------------------------------------ */

/* Checks that index has the rank of x and, except in dimension dim, no larger
 * sizes than x. */
static enum pst_status check_index(struct pst_infer *c, unsigned dim,
                                   const struct pst_meta *x,
                                   const struct pst_meta *index)
{
    char text[2][PST_META_TEXT];
    bool fits = index->rank == x->rank || index->rank + x->rank <= 1;

    if (index->dtype != PST_I64 && index->dtype != PST_I32)
        return pst_infer_fail(c, "the index is %s",
                              pst_dtype_name(index->dtype));
    for (unsigned d = 0; fits && d < PST_MIN(index->rank, x->rank); d++)
        fits = d == dim || index->size[d] <= x->size[d];
    if (!fits)
        return pst_infer_fail(c, "index %s does not fit %s",
                              pst_meta_text(index, text[0]),
                              pst_meta_text(x, text[1]));
    return PST_OK;
}

static enum pst_status infer_index(struct pst_infer *c,
                                   const struct pst_meta **x,
                                   const struct pst_meta **index)
{
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, *x, &dim);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, index);
    return status != PST_OK ? status : check_index(c, dim, *x, *index);
}

static enum pst_status infer_gather(struct pst_infer *c)
{
    const struct pst_meta *x, *index;
    enum pst_status status = infer_index(c, &x, &index);

    return status != PST_OK ? status
                            : pst_infer_set_like(c, 0, x->dtype, index);
}

static enum pst_status infer_scatter(struct pst_infer *c)
{
    const struct pst_meta *x, *index, *src = pst_infer_in(c, 3);
    enum pst_status status = infer_index(c, &x, &index);

    if (status == PST_OK && src != NULL) {
        status = check_index(c, PST_MAX_RANK, src, index);
        if (status == PST_OK)
            status = pst_infer_same_dtype(c, 0, 3);
    }
    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

/* Returns the offset in m of the element at coordinates `at`, with the
 * coordinate in dim replaced by `index`. */
static int64_t offset_at(const struct pst_meta *m, const int64_t *at, int dim,
                         int64_t index)
{
    int64_t offset = 0;

    for (unsigned d = 0; d < m->rank; d++)
        offset += ((int)d == dim ? index : at[d]) * m->stride[d];
    return offset;
}

/* A function that is called for every element of the index tensor that is in
 * range, in order, with its coordinates, its index and its number. */
typedef void (*element_fn)(const struct pst_call *c, const int64_t *at, int dim,
                           int64_t index, int64_t number);

static void each_index(const struct pst_call *c, const struct pst_meta *x,
                       element_fn fn)
{
    const struct pst_operand *index = &c->in[1];
    const struct pst_meta *m = index->meta;
    const int dim = pst_meta_dim(x, c->args[1].i);
    const int64_t size = x->rank > 0 ? x->size[dim] : 1;
    const int64_t n = pst_meta_numel(m);

    for (int64_t i = 0; i < n; i++) {
        int64_t at[PST_MAX_RANK], rest = i, place;

        for (unsigned d = m->rank; d-- > 0;) {
            at[d] = rest % m->size[d];
            rest /= m->size[d];
        }
        place = pst_load_i64(m->dtype, index->data, offset_at(m, at, -1, 0));
        if (pst_index_check(c, place, size))
            fn(c, at, dim, place, i);
    }
}

/* Copies element `from` of in to element `to` of out[0]; if `add`, adds it. */
static void copy_element(const struct pst_call *c, const struct pst_operand *in,
                         int64_t from, int64_t to, bool add)
{
    const struct pst_operand *out = &c->out[0];
    const struct pst_meta one = {.dtype = in->meta->dtype};
    const struct pst_meta other = {.dtype = out->meta->dtype};

    pst_view_copy_ref(
        &one,
        (const char *)in->data + from * (int64_t)pst_dtype_size(one.dtype),
        &other, (char *)out->data + to * (int64_t)pst_dtype_size(other.dtype),
        add);
}

static void gather_at(const struct pst_call *c, const int64_t *at, int dim,
                      int64_t index, int64_t number)
{
    copy_element(c, &c->in[0], offset_at(c->in[0].meta, at, dim, index), number,
                 false);
}

static void scatter_at(const struct pst_call *c, const int64_t *at, int dim,
                       int64_t index, int64_t number PST_UNUSED)
{
    copy_element(c, &c->in[2], offset_at(c->in[2].meta, at, -1, 0),
                 offset_at(c->out[0].meta, at, dim, index), false);
}

static void scatter_add_at(const struct pst_call *c, const int64_t *at, int dim,
                           int64_t index, int64_t number PST_UNUSED)
{
    copy_element(c, &c->in[2], offset_at(c->in[2].meta, at, -1, 0),
                 offset_at(c->out[0].meta, at, dim, index), true);
}

static void scatter_value_at(const struct pst_call *c, const int64_t *at,
                             int dim, int64_t index, int64_t number PST_UNUSED)
{
    const struct pst_arg *value = &c->args[3];
    const struct pst_operand *out = &c->out[0];
    const int64_t to = offset_at(out->meta, at, dim, index);

    if (value->kind == PST_ARG_FLOAT)
        pst_store_f64(out->meta->dtype, out->data, to, value->f);
    else
        pst_store_i64(out->meta->dtype, out->data, to,
                      value->kind == PST_ARG_INT ? value->i : value->b);
}

static void gather_ref(const struct pst_call *c)
{
    memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    each_index(c, c->in[0].meta, gather_at);
}

static void scatter(const struct pst_call *c, element_fn fn)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];

    if (out->data != x->data)
        pst_view_copy(c->pool, x->meta, x->data, out->meta, out->data, false);
    each_index(c, out->meta, fn);
}

static void scatter_src_ref(const struct pst_call *c)
{
    scatter(c, scatter_at);
}

/* True for 16-bit floats, which are summed in f32 and rounded once. */
static bool is_16bit(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->out[0].meta->dtype;

    return pst_dtype_kind(dtype) == PST_KIND_FLOAT &&
           pst_dtype_size(dtype) == 2;
}

static size_t scatter_add_scratch(const struct pst_call *c,
                                  unsigned threads PST_UNUSED)
{
    return is_16bit(c) ? (size_t)pst_meta_numel(c->out[0].meta) * sizeof(float)
                       : 0;
}

static void scatter_add_ref(const struct pst_call *c)
{
    struct pst_meta f32 = *c->out[0].meta;
    struct pst_operand wide = {.data = c->scratch, .meta = &f32};
    struct pst_call call = *c;

    if (!is_16bit(c)) {
        scatter(c, scatter_add_at);
        return;
    }
    f32.dtype = PST_F32;
    call.out = &wide;
    scatter(&call, scatter_add_at);
    pst_view_copy(c->pool, wide.meta, wide.data, c->out[0].meta, c->out[0].data,
                  false);
}

static void scatter_value_ref(const struct pst_call *c)
{
    scatter(c, scatter_value_at);
}

/* --- in blocks of indices ------------------------------------------------- */

static void gather_run(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0];

    pst_along_run(c, PST_PLACES_READ, x, pst_meta_dim(x->meta, c->args[1].i),
                  &c->in[1], &c->out[0]);
}

static void scatter_blocks(const struct pst_call *c, enum pst_places_mode mode,
                           const struct pst_operand *out,
                           const struct pst_operand *list)
{
    const struct pst_operand *x = &c->in[0];

    if (out->data != x->data)
        pst_view_copy(c->pool, x->meta, x->data, out->meta, out->data, false);
    pst_along_run(c, mode, out, pst_meta_dim(out->meta, c->args[1].i),
                  &c->in[1], list);
}

static void scatter_src_run(const struct pst_call *c)
{
    scatter_blocks(c, PST_PLACES_WRITE, &c->out[0], &c->in[2]);
}

static void scatter_value_run(const struct pst_call *c)
{
    const struct pst_arg *value = &c->args[3];
    int64_t cell = 0;
    const struct pst_meta scalar = {.dtype = c->out[0].meta->dtype};
    const struct pst_operand list = {&cell, &scalar};

    if (value->kind == PST_ARG_FLOAT)
        pst_store_f64(list.meta->dtype, &cell, 0, value->f);
    else
        pst_store_i64(list.meta->dtype, &cell, 0,
                      value->kind == PST_ARG_INT ? value->i : value->b);
    scatter_blocks(c, PST_PLACES_WRITE, &c->out[0], &list);
}

/* Returns the bytes of scratch for 16-bit floats: sums and source in f32. */
static size_t scatter_add_bytes(const struct pst_call *c,
                                unsigned threads PST_UNUSED)
{
    return is_16bit(c) ? (size_t)(pst_meta_numel(c->out[0].meta) +
                                  pst_meta_numel(c->in[2].meta)) *
                             sizeof(float)
                       : 0;
}

static void scatter_add_run(const struct pst_call *c)
{
    const struct pst_operand *out = &c->out[0], *src = &c->in[2];
    struct pst_meta sum_meta = *out->meta, list_meta = *src->meta;
    const struct pst_operand sum = {c->scratch, &sum_meta};
    struct pst_operand list = {.meta = &list_meta};

    if (!is_16bit(c)) {
        scatter_blocks(c, PST_PLACES_ADD, out, src);
        return;
    }
    sum_meta.dtype = list_meta.dtype = PST_F32;
    pst_meta_set_contiguous(&list_meta);
    list.data = (float *)c->scratch + pst_meta_numel(out->meta);
    pst_view_copy(c->pool, src->meta, src->data, list.meta, list.data, false);
    scatter_blocks(c, PST_PLACES_ADD, &sum, &list);
    pst_view_copy(c->pool, sum.meta, sum.data, out->meta, out->data, false);
}

static enum pst_status gather_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_scatter_add,
                     PST_ARGS(pst_v(pst_vjp_zeros_like(v, pst_vjp_in(v, 0))),
                              v->node->args[1], v->node->args[2],
                              pst_v(pst_vjp_grad(v, 0)))));
}

/* Pads g with zeros at its end to the sizes of `to`: scatter does not read
 * source elements beyond the sizes of the index, so their gradient is 0. */
static struct pst_value *pad_to(struct pst_vjp *v, struct pst_value *g,
                                const struct pst_meta *to)
{
    int64_t pad[2 * PST_MAX_RANK] = {0};

    if (g == NULL || pst_meta_same_shape(&g->meta, to))
        return g;
    for (unsigned d = 0; d < to->rank; d++)
        pad[2 * (to->rank - 1 - d) + 1] = to->size[d] - g->meta.size[d];
    return pst_vjp_emit(v, &pst_op_constant_pad_nd,
                        PST_ARGS(pst_v(g), pst_ints(pad, 2 * to->rank)));
}

/* The gradient of self is g, but zero at the indexed elements if scatter
 * overwrites them (`add` false). */
static enum pst_status scatter_any_vjp(struct pst_vjp *v, bool add)
{
    const struct pst_arg *args = v->node->args;
    struct pst_value *g = pst_vjp_grad(v, 0), *src = pst_vjp_in(v, 3);
    struct pst_value *part = g;

    if (!add && pst_vjp_needs(v, 0))
        part = pst_vjp_emit(v, &pst_op_scatter_value,
                            PST_ARGS(pst_v(g), args[1], args[2], pst_i(0)));
    if (pst_vjp_needs(v, 0))
        (void)pst_vjp_set(v, 0, part);
    if (src == NULL || !pst_vjp_needs(v, 3))
        return v->build.status;
    part =
        pst_vjp_emit(v, &pst_op_gather, PST_ARGS(pst_v(g), args[1], args[2]));
    return pst_vjp_set(v, pst_vjp_flat(v, 3), pad_to(v, part, &src->meta));
}

static enum pst_status scatter_vjp(struct pst_vjp *v)
{
    return scatter_any_vjp(v, false);
}

static enum pst_status scatter_add_vjp(struct pst_vjp *v)
{
    return scatter_any_vjp(v, true);
}

#define KERNELS(name, bits)                                                    \
    static const struct pst_kernel name##_kernels[] = {                        \
        {#name "_blocks", PST_ISA_ANY, PST_D_ANY, bits, NULL, NULL,            \
         name##_run, 0.0},                                                     \
        {#name "_ref", PST_ISA_ANY, PST_D_ANY, bits, NULL, NULL, name##_ref,   \
         0.0},                                                                 \
    }

#define WRITES (PST_K_INPLACE_0 | PST_K_COPIES)
KERNELS(gather, PST_K_STRIDED);
KERNELS(scatter_src, PST_K_STRIDED | WRITES);
KERNELS(scatter_value, PST_K_STRIDED | WRITES);

static const struct pst_kernel scatter_add_kernels[] = {
    {"scatter_add_blocks", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | WRITES, NULL,
     scatter_add_bytes, scatter_add_run, 0.0},
    {"scatter_add_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | WRITES, NULL,
     scatter_add_scratch, scatter_add_ref, 0.0},
};

const struct pst_op pst_op_gather = {
    .schema = "aten::gather(Tensor self, int dim, Tensor index, *, "
              "bool sparse_grad=False) -> Tensor",
    .infer = infer_gather,
    .vjp = gather_vjp,
};
PST_CPU_KERNELS(gather, gather_kernels);

const struct pst_op pst_op_scatter_src = {
    .schema = "aten::scatter.src(Tensor self, int dim, Tensor index, "
              "Tensor src) -> Tensor",
    .infer = infer_scatter,
    .vjp = scatter_vjp,
};
PST_CPU_KERNELS(scatter_src, scatter_src_kernels);

const struct pst_op pst_op_scatter_value = {
    .schema = "aten::scatter.value(Tensor self, int dim, Tensor index, "
              "Scalar value) -> Tensor",
    .infer = infer_scatter,
    .vjp = scatter_vjp,
};
PST_CPU_KERNELS(scatter_value, scatter_value_kernels);

const struct pst_op pst_op_scatter_add = {
    .schema = "aten::scatter_add(Tensor self, int dim, Tensor index, "
              "Tensor src) -> Tensor",
    .infer = infer_scatter,
    .vjp = scatter_add_vjp,
};
PST_CPU_KERNELS(scatter_add, scatter_add_kernels);
