// SPDX-License-Identifier: Apache-2.0
/* index_select, which copies whole slices along one dimension, and one_hot. */
#include "stages/ops/core/rows.h"
#include "stages/ops/index/places.h"

#include <string.h>

/* --- index_select --------------------------------------------------------- */

static enum pst_status infer_index_select(struct pst_infer *c)
{
    const struct pst_meta *x, *index;
    struct pst_meta to;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &index);
    if (status != PST_OK)
        return status;
    if (index->rank > 1 || x->rank == 0 ||
        (index->dtype != PST_I64 && index->dtype != PST_I32))
        return pst_infer_fail(c, "the index must be a vector of integers");
    to = *x;
    to.size[dim] = pst_meta_numel(index);
    return pst_infer_set_like(c, 0, x->dtype, &to);
}

static void index_select_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *index = &c->in[1];
    const struct pst_operand *out = &c->out[0];
    const unsigned dim = (unsigned)pst_meta_dim(x->meta, c->args[1].i);
    const struct pst_meta from = pst_view_drop(x->meta, dim);
    const struct pst_meta to = pst_view_drop(out->meta, dim);
    const int64_t size = (int64_t)pst_dtype_size(x->meta->dtype);

    memset(out->data, 0, pst_meta_bytes(out->meta));
    for (int64_t i = 0; i < out->meta->size[dim]; i++) {
        const int64_t at = pst_load_i64(
            index->meta->dtype, index->data,
            index->meta->rank > 0 ? i * index->meta->stride[0] : 0);

        if (!pst_index_check(c, at, x->meta->size[dim]))
            continue;
        pst_view_copy(
            NULL, &from,
            (const char *)x->data + at * x->meta->stride[dim] * size, &to,
            (char *)out->data + i * out->meta->stride[dim] * size, false);
    }
}

static void index_select_run(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *index = &c->in[1];
    const struct pst_operand *out = &c->out[0];
    const unsigned dim = (unsigned)pst_meta_dim(x->meta, c->args[1].i);
    const struct pst_meta from = pst_view_drop(x->meta, dim);
    const struct pst_meta to = pst_view_drop(out->meta, dim);
    const struct pst_meta list = {.dtype = out->meta->dtype,
                                  .rank = 1,
                                  .size = {out->meta->size[dim]},
                                  .stride = {out->meta->stride[dim]}};
    struct pst_places p = {
        .c = c,
        .index = {index},
        .n = 1,
        .size = {x->meta->size[dim]},
        .stride = {x->meta->stride[dim]},
        .list = out->data,
        .table = x->data,
        .dtype = x->meta->dtype,
        .mode = PST_PLACES_READ,
    };

    pst_nd_init(&p.places, 2, (const struct pst_meta *[]){&list, index->meta});
    pst_nd_init(&p.window, 2, (const struct pst_meta *[]){&to, &from});
    pst_places_run(&p, c->pool);
}

/* The gradient is zeros.index_put((..., index), g, accumulate). */
static enum pst_status index_select_vjp(struct pst_vjp *v)
{
    struct pst_value *x = pst_vjp_in(v, 0), *index = pst_vjp_in(v, 2);
    const int dim = pst_meta_dim(&x->meta, v->node->args[1].i);
    const int64_t n = pst_meta_numel(&index->meta);
    struct pst_value *list[PST_MAX_RANK] = {NULL};

    list[dim] = pst_vjp_reshape(v, index, 1, &n);
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_index_put,
                     PST_ARGS(pst_v(pst_vjp_zeros_like(v, x)),
                              pst_values(list, (unsigned)dim + 1),
                              pst_v(pst_vjp_grad(v, 0)), pst_b(true))));
}

static const struct pst_kernel index_select_kernels[] = {
    {"index_select_blocks", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     index_select_run, 0.0},
    {"index_select_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     index_select_ref, 0.0},
};

const struct pst_op pst_op_index_select = {
    .schema = "aten::index_select(Tensor self, int dim, Tensor index) -> "
              "Tensor",
    .infer = infer_index_select,
    .vjp = index_select_vjp,
};
PST_CPU_KERNELS(index_select, index_select_kernels);

/* --- one_hot -------------------------------------------------------------- */

static enum pst_status infer_one_hot(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta to;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (c->args[1].i < 0)
        return pst_infer_refuse(c, "without num_classes the shape of the "
                                   "result depends on data");
    if (x->dtype != PST_I64 || x->rank == PST_MAX_RANK || c->args[1].i == 0)
        return pst_infer_fail(c, "wants i64 and at least one class");
    to = *x;
    to.size[to.rank++] = c->args[1].i;
    return pst_infer_set_like(c, 0, PST_I64, &to);
}

static void one_hot_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0];
    const int64_t n = pst_meta_numel(x->meta), classes = c->args[1].i;
    int64_t *out = c->out[0].data;

    memset(out, 0, pst_meta_bytes(c->out[0].meta));
    for (int64_t i = 0; i < n; i++) {
        const int64_t at =
            ((const int64_t *)x->data)[pst_meta_offset(x->meta, i)];

        if (pst_index_check(c, at, classes))
            out[i * classes + at] = 1;
    }
}

static const struct pst_kernel one_hot_kernels[] = {
    {"one_hot_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     one_hot_ref, 0.0},
};

const struct pst_op pst_op_one_hot = {
    .schema = "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor",
    .infer = infer_one_hot,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(one_hot, one_hot_kernels);
