// SPDX-License-Identifier: Apache-2.0
/* embedding: reads rows of a table; its gradient sums into the rows that were
 * read. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/index/bounds.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* --- embedding ------------------------------------------------------------ */

static enum pst_status check_indices(struct pst_infer *c, unsigned arg,
                                     const struct pst_meta **ret)
{
    enum pst_status status = pst_infer_tensor(c, arg, ret);

    if (status == PST_OK && (*ret)->dtype != PST_I64 &&
        (*ret)->dtype != PST_I32)
        return pst_infer_fail(c, "indices are %s, not i64 or i32",
                              pst_dtype_name((*ret)->dtype));
    return status;
}

static enum pst_status infer_embedding(struct pst_infer *c)
{
    const struct pst_meta *weight, *index;
    struct pst_meta to;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &weight);

    if (status == PST_OK)
        status = check_indices(c, 1, &index);
    if (status != PST_OK)
        return status;
    if (weight->rank != 2 || index->rank == PST_MAX_RANK)
        return pst_infer_fail(c, "the table is %s, not a matrix",
                              pst_meta_text(weight, text));
    to = *index;
    to.size[to.rank++] = weight->size[1];
    return pst_infer_set_like(c, 0, weight->dtype, &to);
}

struct lookup {
    const struct pst_call *c;
    int64_t rows, size; /* rows of the table; bytes of a row */
};

/* Loads index i; false if it is out of range, which is a fault. */
static bool index_at(const struct pst_call *c, const struct pst_operand *index,
                     int64_t i, int64_t rows, int64_t *ret)
{
    *ret = pst_load_i64(index->meta->dtype, index->data,
                        pst_meta_offset(index->meta, i));
    return pst_index_check(c, *ret, rows);
}

static void lookup_part(void *ctx, unsigned part, unsigned parts)
{
    const struct lookup *l = ctx;
    const char *table = l->c->in[0].data;
    char *out = l->c->out[0].data;
    int64_t begin, end, row;

    pst_pool_share(pst_meta_numel(l->c->in[1].meta), 1, part, parts, &begin,
                   &end);
    for (int64_t i = begin; i < end; i++) {
        if (index_at(l->c, &l->c->in[1], i, l->rows, &row))
            memcpy(out + i * l->size, table + row * l->size, (size_t)l->size);
        else
            memset(out + i * l->size, 0, (size_t)l->size);
    }
}

static void embedding_run(const struct pst_call *c)
{
    const struct pst_meta *weight = c->in[0].meta;
    struct lookup l = {c, weight->size[0],
                       weight->size[1] *
                           (int64_t)pst_dtype_size(weight->dtype)};

    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->out[0].meta) >= PST_ND_SERIAL),
        lookup_part, &l);
}

static void embedding_ref(const struct pst_call *c)
{
    const struct pst_operand *weight = &c->in[0], *out = &c->out[0];
    const int64_t size = (int64_t)pst_dtype_size(weight->meta->dtype);
    const int64_t columns = weight->meta->size[1];
    const int64_t n = pst_meta_numel(c->in[1].meta);

    for (int64_t i = 0; i < n; i++) {
        int64_t row;
        const bool found =
            index_at(c, &c->in[1], i, weight->meta->size[0], &row);

        for (int64_t k = 0; k < columns; k++) {
            char *to = (char *)out->data + (i * columns + k) * size;

            if (found)
                memcpy(to,
                       (const char *)weight->data +
                           (row * weight->meta->stride[0] +
                            k * weight->meta->stride[1]) *
                               size,
                       (size_t)size);
            else
                memset(to, 0, (size_t)size);
        }
    }
}

static enum pst_status embedding_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;

    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_embedding_dense_backward,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), args[1],
                              pst_i(pst_vjp_in(v, 0)->meta.size[0]), args[2],
                              args[3])));
}

static const struct pst_kernel embedding_kernels[] = {
    {"embedding_rows", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, embedding_run,
     0.0},
    {"embedding_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     embedding_ref, 0.0},
};

const struct pst_op pst_op_embedding = {
    .schema = "aten::embedding(Tensor weight, Tensor indices, "
              "SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
              "bool sparse=False) -> Tensor",
    .infer = infer_embedding,
    .vjp = embedding_vjp,
};
PST_CPU_KERNELS(embedding, embedding_kernels);

/* --- embedding_dense_backward --------------------------------------------- */

static enum pst_status infer_backward(struct pst_infer *c)
{
    const struct pst_meta *g, *index;
    char text[2][PST_META_TEXT];
    int64_t sizes[2] = {c->args[2].i, 0};
    bool fits;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = check_indices(c, 1, &index);
    if (status != PST_OK)
        return status;
    fits = g->rank == index->rank + 1;
    for (unsigned d = 0; fits && d < index->rank; d++)
        fits = g->size[d] == index->size[d];
    if (!fits || pst_dtype_kind(g->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "gradient %s does not fit indices %s",
                              pst_meta_text(g, text[0]),
                              pst_meta_text(index, text[1]));
    sizes[1] = g->size[index->rank];
    return pst_infer_set(c, 0, g->dtype, 2, sizes);
}

/* Sets *ret to the row of the result to which gradient i is added; false if
 * index i is padding_idx, or out of range. */
static bool target_row(const struct pst_call *c, int64_t i, int64_t *ret)
{
    return index_at(c, &c->in[1], i, c->args[2].i, ret) && *ret != c->args[3].i;
}

/* Pool function: handles a share of the columns, so that each element sums its
 * gradients in the order of the indices for any number of threads. */
static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_call *c = ctx;
    const int64_t n = pst_meta_numel(c->in[1].meta);
    const int64_t columns = c->out[0].meta->size[1];
    const float *g = c->in[0].data;
    float *out = c->out[0].data;
    int64_t begin, end, row;

    pst_pool_share(columns, 16, part, parts, &begin, &end);
    if (!c->accumulate && begin < end)
        for (int64_t i = 0; i < c->out[0].meta->size[0]; i++)
            memset(out + i * columns + begin, 0,
                   (size_t)(end - begin) * sizeof(*out));
    for (int64_t i = 0; i < n && begin < end; i++) {
        if (!target_row(c, i, &row))
            continue;
        for (int64_t k = begin; k < end; k++)
            out[row * columns + k] += g[i * columns + k];
    }
}

static void backward_run(const struct pst_call *c)
{
    struct pst_call call = *c;

    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        backward_part, &call);
}

static bool backward_supports(const struct pst_call *c)
{
    return !c->args[4].b;
}

/* Returns the scratch that counts how often each row was read
 * (scale_grad_by_freq). */
static size_t backward_scratch(const struct pst_call *c,
                               unsigned threads PST_UNUSED)
{
    return c->args[4].b ? (size_t)c->args[2].i * sizeof(int64_t) : 0;
}

static void backward_ref(const struct pst_call *c)
{
    const struct pst_operand *g = &c->in[0], *out = &c->out[0];
    const int64_t columns = out->meta->size[1];
    const int64_t n = pst_meta_numel(c->in[1].meta);
    const enum pst_dtype dtype = out->meta->dtype;
    int64_t *count = c->args[4].b ? c->scratch : NULL;
    int64_t row;

    if (!c->accumulate)
        memset(out->data, 0, pst_meta_bytes(out->meta));
    if (count != NULL) {
        memset(count, 0, (size_t)c->args[2].i * sizeof(*count));
        for (int64_t i = 0; i < n; i++)
            if (target_row(c, i, &row))
                count[row]++;
    }
    for (int64_t i = 0; i < n; i++) {
        double scale;

        if (!target_row(c, i, &row))
            continue;
        scale = count != NULL ? 1.0 / (double)count[row] : 1.0;
        for (int64_t k = 0; k < columns; k++)
            pst_store_f64(
                dtype, out->data, row * columns + k,
                pst_load_f64(dtype, out->data, row * columns + k) +
                    scale * pst_load_f64(
                                dtype, g->data,
                                pst_meta_offset(g->meta, i * columns + k)));
    }
}

static const struct pst_kernel backward_kernels[] = {
    {"embedding_backward_f32", PST_ISA_ANY, PST_D(F32), PST_K_ACCUMULATE,
     backward_supports, NULL, backward_run, 1e-6},
    {"embedding_backward_ref", PST_ISA_ANY, PST_D_FLOAT,
     PST_K_STRIDED | PST_K_ACCUMULATE, NULL, backward_scratch, backward_ref,
     0.0},
};

const struct pst_op pst_op_embedding_dense_backward = {
    .schema = "aten::embedding_dense_backward(Tensor grad_output, "
              "Tensor indices, SymInt num_weights, SymInt padding_idx, "
              "bool scale_grad_by_freq) -> Tensor",
    .infer = infer_backward,
    /* The gradient of a sum of rows reads the rows again. Like PyTorch it
     * ignores scale_grad_by_freq. */
    .vjp = pst_vjp_formula,
    .formula = "rows = embedding(grad, indices);"
               "grad_output: padding_idx < 0 ? rows : "
               "(unsqueeze(indices == padding_idx, -1) ? 0 : rows)",
};
PST_CPU_KERNELS(embedding_dense_backward, backward_kernels);
