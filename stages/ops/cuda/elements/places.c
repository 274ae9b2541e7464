// SPDX-License-Identifier: Apache-2.0
/* gather, scatter, scatter_add, index_select, index and index_put. */
#include "stages/ops/index/places.h"

#include <limits.h>

#include "stages/ops/cuda/code/elements/places.h"
#include "stages/ops/cuda/elements/embed.h"
#include "stages/ops/cuda/fault.h"
#include "stages/ops/cuda/kernels.h"
#include "stages/ops/pointwise/pointwise.h"

/* --- descriptions of calls ------------------------------------------------ */

/* Describes gather or scatter along dimension args[1]: each element of the
 * index (in[1]) selects one element of the table. table: the indexed tensor,
 * out or in[0]; list: the tensor on the other side, in each dimension at least
 * as large as the index; NULL: one number for all elements. */
static void describe_along(const struct pst_call *c,
                           const struct pst_operand *table,
                           const struct pst_operand *list,
                           struct pst_index_loop *ret)
{
    const struct pst_operand *index = &c->in[1];
    const struct pst_meta *x = table->meta;
    const int dim = pst_meta_dim(x, c->args[1].i);

    *ret = (struct pst_index_loop){.n = 1, .of = {index}};
    ret->list = ret->table = ret->index[0] = *index->meta;
    for (unsigned d = 0; d < index->meta->rank; d++) {
        ret->list.stride[d] =
            list != NULL && d < list->meta->rank ? list->meta->stride[d] : 0;
        ret->table.stride[d] = d < x->rank && (int)d != dim ? x->stride[d] : 0;
    }
    ret->size[0] = x->rank > 0 ? x->size[dim] : 1;
    ret->stride[0] = x->rank > 0 ? x->stride[dim] : 0;
}

/* Describes index_select: the slices of in[0] that in[1] selects along
 * dimension args[1]. */
static void select_slices(const struct pst_call *c, struct pst_index_loop *ret)
{
    const struct pst_meta *x = c->in[0].meta, *index = c->in[1].meta;
    const unsigned dim = (unsigned)pst_meta_dim(x, c->args[1].i);

    *ret = (struct pst_index_loop){.n = 1, .of = {&c->in[1]}};
    ret->list = ret->table = ret->index[0] = *c->out[0].meta;
    for (unsigned d = 0; d < x->rank; d++) {
        ret->table.stride[d] = d == dim ? 0 : x->stride[d];
        ret->index[0].stride[d] =
            d == dim && index->rank > 0 ? index->stride[0] : 0;
    }
    ret->size[0] = x->size[dim];
    ret->stride[0] = x->stride[dim];
}

/* Fills the parameters, except list and table; false if there is nothing to do.
 */
static bool params_of(const struct pst_call *c, const struct pst_index_loop *l,
                      struct pst_cuda_places *p)
{
    const struct pst_meta *metas[2 + PST_CUDA_PLACES] = {&l->list, &l->table};

    *p = (struct pst_cuda_places){
        .n = l->n,
        .bytes = (uint32_t)pst_dtype_size(c->out[0].meta->dtype),
        .fault = pst_cuda_fault_of(c, PST_FAULT_INDEX_RANGE)};
    for (unsigned k = 0; k < l->n; k++) {
        metas[2 + k] = &l->index[k];
        p->index[k] = l->of[k]->data;
        p->wide[k] = l->of[k]->meta->dtype == PST_I64;
        p->size[k] = l->size[k];
        p->stride[k] = l->stride[k];
    }
    return pst_cuda_nd_make(2 + l->n, metas, &p->nd);
}

/* --- runs ----------------------------------------------------------------- */

static void run_read(const struct pst_call *c, const struct pst_index_loop *l,
                     bool wrap)
{
    struct pst_cuda_places p;

    if (!params_of(c, l, &p))
        return;
    p.wrap = wrap;
    p.list = c->out[0].data;
    p.table = c->in[0].data;
    pst_cuda_launch_n(c->stream, PST_FN_pst_places_read, p.nd.numel, &p);
}

static void copy_input(const struct pst_call *c)
{
    const struct pst_meta *metas[2] = {c->out[0].meta, c->in[0].meta};
    struct pst_cuda_copy p = {
        .to = c->out[0].data,
        .from = c->in[0].data,
        .bytes = (uint32_t)pst_dtype_size(c->out[0].meta->dtype)};

    if (p.to != p.from && pst_cuda_nd_make(2, metas, &p.nd))
        pst_cuda_launch_n(c->stream, PST_FN_pst_task_copy, p.nd.numel, &p);
}

/* Writes list, or `number` if list is NULL, to the table. */
static void run_write(const struct pst_call *c, const struct pst_index_loop *l,
                      bool wrap, void *list, uint64_t number)
{
    struct pst_cuda_places p;

    copy_input(c);
    if (!params_of(c, l, &p))
        return;
    p.wrap = wrap;
    p.list = list;
    p.number = number;
    p.table = c->out[0].data;
    p.last = c->scratch;
    pst_cuda_fill_n(c->stream, p.last, pst_meta_numel(c->out[0].meta), -1);
    pst_cuda_launch_n(c->stream, PST_FN_pst_places_last, p.nd.numel, &p);
    pst_cuda_launch_n(c->stream, PST_FN_pst_places_write, p.nd.numel, &p);
}

/* Adds to each element of the table the elements of the list that belong to it,
 * in the order of the list. */
static void run_add(const struct pst_call *c, const struct pst_index_loop *l,
                    bool wrap, void *list)
{
    const int64_t rows = pst_meta_numel(c->out[0].meta);
    struct pst_cuda_embed_grad sum = {.to = c->out[0].data,
                                      .rows = rows,
                                      .width = 1,
                                      .padding = -1,
                                      .wide = 1,
                                      .accumulate = 1};
    struct pst_cuda_places p;

    copy_input(c);
    if (!params_of(c, l, &p))
        return;
    p.wrap = wrap;
    p.list = list;
    p.keys = c->scratch;
    p.values = (float *)(p.keys + p.nd.numel);
    sum.n = p.nd.numel;
    sum.index = p.keys;
    sum.g = p.values;
    sum.found = (int32_t *)(p.values + sum.n);
    sum.order = sum.found + sum.n;
    sum.start = sum.order + sum.n;
    sum.next = sum.start + rows + 1;
    pst_cuda_launch_n(c->stream, PST_FN_pst_places_keys, p.nd.numel, &p);
    pst_cuda_embed_sum(c->stream, &sum);
}

static size_t write_scratch(const struct pst_call *c,
                            unsigned threads PST_UNUSED)
{
    return (size_t)pst_meta_numel(c->out[0].meta) * sizeof(int32_t);
}

static size_t add_bytes(const struct pst_call *c,
                        const struct pst_index_loop *l)
{
    const int64_t rows = pst_meta_numel(c->out[0].meta);

    return (size_t)pst_meta_numel(&l->list) *
               (sizeof(int64_t) + sizeof(float) + 2 * sizeof(int32_t)) +
           (size_t)(2 * rows + 1) * sizeof(int32_t);
}

/* --- supported calls ------------------------------------------------------ */

/* True if indices are i64 or i32, and 32 bits suffice to number elements. */
static bool fits(const struct pst_call *c, const struct pst_index_loop *l)
{
    if (l->n > PST_CUDA_PLACES ||
        pst_dtype_size(c->out[0].meta->dtype) > sizeof(uint64_t) ||
        pst_meta_numel(&l->list) > INT_MAX - 1 ||
        pst_meta_numel(c->out[0].meta) > INT_MAX - 1)
        return false;
    for (unsigned k = 0; k < l->n; k++)
        if (l->of[k]->meta->dtype != PST_I64 &&
            l->of[k]->meta->dtype != PST_I32)
            return false;
    return true;
}

static bool gather_fits(const struct pst_call *c)
{
    struct pst_index_loop l;

    describe_along(c, &c->in[0], &c->out[0], &l);
    return fits(c, &l);
}

static void gather_run(const struct pst_call *c)
{
    struct pst_index_loop l;

    describe_along(c, &c->in[0], &c->out[0], &l);
    run_read(c, &l, false);
}

static bool select_fits(const struct pst_call *c)
{
    struct pst_index_loop l;

    select_slices(c, &l);
    return fits(c, &l);
}

static void select_run(const struct pst_call *c)
{
    struct pst_index_loop l;

    select_slices(c, &l);
    run_read(c, &l, false);
}

static bool index_fits(const struct pst_call *c)
{
    struct pst_index_loop l;

    return pst_index_loop_of(c, false, &l) && fits(c, &l);
}

static void index_run(const struct pst_call *c)
{
    struct pst_index_loop l;

    if (pst_index_loop_of(c, false, &l))
        run_read(c, &l, true);
}

/* --- scatter ---------------------------------------------------------------
 */

static bool scatter_fits(const struct pst_call *c)
{
    struct pst_index_loop l;

    describe_along(c, &c->out[0], NULL, &l);
    return fits(c, &l);
}

static void scatter_src_run(const struct pst_call *c)
{
    struct pst_index_loop l;

    describe_along(c, &c->out[0], &c->in[2], &l);
    run_write(c, &l, false, c->in[2].data, 0);
}

static void scatter_value_run(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->out[0].meta->dtype;
    const struct pst_arg *value = &c->args[3];
    struct pst_index_loop l;
    uint64_t bits = 0;

    if (value->kind == PST_ARG_FLOAT)
        pst_store_f64(dtype, &bits, 0, value->f);
    else
        pst_store_i64(dtype, &bits, 0,
                      value->kind == PST_ARG_INT ? value->i : value->b);
    describe_along(c, &c->out[0], NULL, &l);
    run_write(c, &l, false, NULL, bits);
}

static bool scatter_add_fits(const struct pst_call *c)
{
    return scatter_fits(c) && c->out[0].meta->dtype == PST_F32;
}

static size_t scatter_add_scratch(const struct pst_call *c,
                                  unsigned threads PST_UNUSED)
{
    struct pst_index_loop l;

    describe_along(c, &c->out[0], &c->in[2], &l);
    return add_bytes(c, &l);
}

static void scatter_add_run(const struct pst_call *c)
{
    struct pst_index_loop l;

    describe_along(c, &c->out[0], &c->in[2], &l);
    run_add(c, &l, false, c->in[2].data);
}

/* --- index_put -------------------------------------------------------------
 */

static bool index_put_fits(const struct pst_call *c)
{
    struct pst_index_loop l;

    return pst_index_loop_of(c, true, &l) && fits(c, &l) &&
           (!c->args[3].b || c->out[0].meta->dtype == PST_F32);
}

static size_t index_put_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_index_loop l;

    if (!pst_index_loop_of(c, true, &l))
        return 0;
    return c->args[3].b ? add_bytes(c, &l) : write_scratch(c, threads);
}

static void index_put_run(const struct pst_call *c)
{
    void *const values = c->in[c->n_in - 1].data;
    struct pst_index_loop l;

    if (!pst_index_loop_of(c, true, &l))
        return;
    if (c->args[3].b)
        run_add(c, &l, true, values);
    else
        run_write(c, &l, true, values, 0);
}

/* --- rows ----------------------------------------------------------------- */

#define KERNEL(id, what, asked, mask, bits, bytes)                             \
    static const struct pst_kernel what##_kernels[] = {                        \
        {#id "_cuda", PST_ISA_ANY, mask,                                       \
         PST_K_QUEUED | PST_K_STRIDED | (bits), asked, bytes, what##_run,      \
         0.0},                                                                 \
    };                                                                         \
    PST_CUDA_KERNELS(id, what##_kernels)
#define WRITES (PST_K_INPLACE_0 | PST_K_COPIES)

KERNEL(gather, gather, gather_fits, PST_D_ANY, 0, NULL);
KERNEL(index_select, select, select_fits, PST_D_ANY, 0, NULL);
KERNEL(index_Tensor, index, index_fits, PST_D_ANY, 0, NULL);
KERNEL(scatter_src, scatter_src, scatter_fits, PST_D_ANY, WRITES,
       write_scratch);
KERNEL(scatter_value, scatter_value, scatter_fits, PST_D_ANY, WRITES,
       write_scratch);
KERNEL(scatter_add, scatter_add, scatter_add_fits, PST_D(F32), WRITES,
       scatter_add_scratch);
KERNEL(index_put, index_put, index_put_fits, PST_D_ANY, WRITES,
       index_put_scratch);
