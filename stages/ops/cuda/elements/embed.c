// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/elements/embed.h"

#include "stages/ops/cuda/fault.h"
#include "stages/ops/cuda/kernels.h"

/* --- embedding --------------------------------------------------------------
 */

static bool is_index(const struct pst_operand *x)
{
    return x->meta->dtype == PST_I64 || x->meta->dtype == PST_I32;
}

/* Returns the widest unit that divides a row of `size` bytes and both
 * addresses. */
static uint32_t unit_of(size_t size, const void *a, const void *b)
{
    uint32_t unit = 16;

    while ((size | (uintptr_t)a | (uintptr_t)b) % unit != 0)
        unit /= 2;
    return unit;
}

static void embedding_run(const struct pst_call *c)
{
    const struct pst_meta *weight = c->in[0].meta;
    const size_t size = (size_t)weight->size[1] * pst_dtype_size(weight->dtype);
    struct pst_cuda_embed p = {
        .to = c->out[0].data,
        .from = c->in[0].data,
        .index = c->in[1].data,
        .n = pst_meta_numel(c->in[1].meta),
        .rows = weight->size[0],
        .unit = unit_of(size, c->out[0].data, c->in[0].data),
        .wide = c->in[1].meta->dtype == PST_I64,
        .fault = pst_cuda_fault_of(c, PST_FAULT_INDEX_RANGE)};

    p.width = (int64_t)(size / p.unit);
    pst_cuda_launch_n(c->stream, PST_FN_pst_embed, p.n * p.width, &p);
}

static bool embedding_supports(const struct pst_call *c)
{
    return is_index(&c->in[1]);
}

static const struct pst_kernel embedding_kernels[] = {
    {"cuda_embedding", PST_ISA_ANY, PST_D_ANY, PST_K_QUEUED, embedding_supports,
     NULL, embedding_run, 0.0},
};
PST_CUDA_KERNELS(embedding, embedding_kernels);

/* --- embedding_dense_backward -------------------------------------------- */

static size_t backward_scratch(const struct pst_call *c,
                               unsigned threads PST_UNUSED)
{
    const int64_t n = pst_meta_numel(c->in[1].meta);

    return (size_t)(2 * c->args[2].i + 1 + 2 * n) * sizeof(int32_t);
}

void pst_cuda_fill_n(struct pst_cuda_context *c, int32_t *to, int64_t n,
                     int32_t x)
{
    const struct pst_cuda_fill p = {
        .nd = {.rank = 1, .numel = n, .size = {n}, .stride = {{1}}},
        .to = to,
        .wide = (uint32_t)x,
        .bytes = sizeof(*to)};

    pst_cuda_launch_n(c, PST_FN_pst_task_fill, n, &p);
}

void pst_cuda_embed_sum(struct pst_cuda_context *c,
                        const struct pst_cuda_embed_grad *p)
{
    pst_cuda_fill_n(c, p->start, p->rows + 1, 0);
    pst_cuda_launch_n(c, PST_FN_pst_embed_count, p->n, p);
    pst_cuda_launch(c, PST_FN_pst_embed_starts, 1, 1, p);
    pst_cuda_launch_n(c, PST_FN_pst_embed_find, p->n, p);
    pst_cuda_launch_n(c, PST_FN_pst_embed_order, p->n, p);
    pst_cuda_launch_n(c,
                      p->type == PST_CUDA_F32 ? PST_FN_pst_embed_sum_f32
                                              : PST_FN_pst_embed_sum_16,
                      p->rows * p->width, p);
}

static void backward_run(const struct pst_call *c)
{
    const int64_t n = pst_meta_numel(c->in[1].meta), rows = c->args[2].i;
    int32_t *const scratch = c->scratch;
    const struct pst_cuda_embed_grad p = {
        .to = c->out[0].data,
        .g = c->in[0].data,
        .index = c->in[1].data,
        .start = scratch,
        .next = scratch + rows + 1,
        .found = scratch + 2 * rows + 1,
        .order = scratch + 2 * rows + 1 + n,
        .n = n,
        .rows = rows,
        .width = c->out[0].meta->size[1],
        .padding = c->args[3].i,
        .wide = c->in[1].meta->dtype == PST_I64,
        .accumulate = c->accumulate,
        .by_count = c->args[4].b,
        .type = pst_cuda_operand_type(&c->out[0]),
        .fault = pst_cuda_fault_of(c, PST_FAULT_INDEX_RANGE)};

    pst_cuda_embed_sum(c->stream, &p);
}

/* True if 32 bits suffice to number the positions. */
static bool backward_supports(const struct pst_call *c)
{
    return is_index(&c->in[1]) &&
           c->out[0].meta->dtype == c->in[0].meta->dtype &&
           pst_meta_numel(c->in[1].meta) < INT32_MAX;
}

static const struct pst_kernel backward_kernels[] = {
    {"cuda_embedding_backward_f32", PST_ISA_ANY, PST_D(F32),
     PST_K_QUEUED | PST_K_ACCUMULATE, backward_supports, backward_scratch,
     backward_run, 1e-6},
    /* the reference rounds every partial sum to 16 bits, this kernel only the
     * last one */
    {"cuda_embedding_backward_16", PST_ISA_ANY, PST_D_16,
     PST_K_QUEUED | PST_K_ACCUMULATE, backward_supports, backward_scratch,
     backward_run, 2e-2},
};
PST_CUDA_KERNELS(embedding_dense_backward, backward_kernels);
