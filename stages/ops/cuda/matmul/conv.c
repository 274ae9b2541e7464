// SPDX-License-Identifier: Apache-2.0
/* Convolutions and their gradients. */
#include "stages/ops/conv/conv.h"

#include <limits.h>

#include "stages/ops/cuda/code/matmul/conv.h"
#include "stages/ops/cuda/kernels.h"

#define BLOCKS 512 /* blocks that keep a large GPU busy */
/* Blocks of a grid in y, by CUDA's limits: set_tiles divides a group only as
 * long as there are at most BLOCKS of them. */
#define MOST_GROUPS 65535
#define LEAST_DEPTH 256 /* least depth of each split */

static int32_t tiles_of(int64_t n, int64_t size)
{
    return (int32_t)((n + size - 1) / size);
}

static enum pst_cuda_conv_form form_of(const struct pst_call *call,
                                       const struct pst_conv *c)
{
    return c->y == &call->out[0]   ? PST_CUDA_CONV_Y
           : c->x == &call->out[0] ? PST_CUDA_CONV_X
                                   : PST_CUDA_CONV_W;
}

static void set_product(struct pst_cuda_conv *p)
{
    const bool of_x = p->form == PST_CUDA_CONV_X;

    p->entries = (of_x ? p->co : p->ci) * p->k_volume;
    p->rows = of_x ? p->ci : p->co;
    if (p->form == PST_CUDA_CONV_W) {
        p->cols = p->entries;
        p->depth = p->n * p->out_volume;
    } else {
        p->cols = p->n * (of_x ? p->in_volume : p->out_volume);
        p->depth = p->entries;
    }
}

static void set_tiles(struct pst_cuda_conv *p)
{
    int64_t tiles, splits;

    p->row_tiles = (uint32_t)tiles_of(p->rows, PST_CUDA_CONV_TILE);
    p->col_tiles = (uint32_t)tiles_of(p->cols, PST_CUDA_CONV_TILE);
    tiles = (int64_t)p->row_tiles * p->col_tiles * p->groups;
    splits = PST_MIN(p->depth / LEAST_DEPTH, tiles > 0 ? BLOCKS / tiles : 1);
    splits = PST_MAX(splits, (int64_t)1);
    p->per_split =
        PST_MAX(tiles_of(tiles_of(p->depth, splits), PST_CUDA_CONV_K), 1) *
        PST_CUDA_CONV_K;
    p->splits = (uint32_t)PST_MAX(tiles_of(p->depth, p->per_split), 1);
}

static struct pst_cuda_conv params_of(const struct pst_call *call,
                                      const struct pst_conv *c)
{
    struct pst_cuda_conv p = {
        .x = c->x->data,
        .y = c->y->data,
        .w = c->w->data,
        .bias = c->bias != NULL ? c->bias->data : NULL,
        .to = call->out[0].data,
        .table = call->scratch,
        .n = (int32_t)c->n,
        .groups = (int32_t)c->groups,
        .ci = (int32_t)(c->ci / c->groups),
        .co = (int32_t)(c->co / c->groups),
        .in_volume = (int32_t)pst_conv_volume(c->in),
        .out_volume = (int32_t)pst_conv_volume(c->out),
        .k_volume = (int32_t)pst_conv_volume(c->k),
        .form = form_of(call, c),
        .accumulate = c->accumulate,
    };

    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        p.in[d] = (int32_t)c->in[d];
        p.out[d] = (int32_t)c->out[d];
        p.k[d] = (int32_t)c->k[d];
        p.stride[d] = (int32_t)c->stride[d];
        p.pad[d] = (int32_t)c->pad[d];
        p.dil[d] = (int32_t)c->dil[d];
    }
    set_product(&p);
    set_tiles(&p);
    return p;
}

/* Returns the bytes of the table, which is followed by the splits' results. */
static size_t table_of(const struct pst_cuda_conv *p)
{
    return ((size_t)p->entries * sizeof(*p->table) + 255) / 256 * 256;
}

static size_t scratch(const struct pst_call *call, const struct pst_conv *c)
{
    const struct pst_cuda_conv p = params_of(call, c);

    return table_of(&p) + (p.splits == 1 ? 0
                                         : (size_t)p.splits * (size_t)p.groups *
                                               (size_t)p.rows * (size_t)p.cols *
                                               sizeof(float));
}

static void run(const struct pst_call *call, const struct pst_conv *c)
{
    static const enum pst_cuda_fn fns[] = {
        [PST_CUDA_CONV_Y] = PST_FN_pst_conv_y_f32,
        [PST_CUDA_CONV_X] = PST_FN_pst_conv_x_f32,
        [PST_CUDA_CONV_W] = PST_FN_pst_conv_w_f32};
    struct pst_cuda_conv p = params_of(call, c);
    const int64_t all = (int64_t)p.groups * p.rows * p.cols;

    p.partial = (float *)((char *)call->scratch + table_of(&p));
    pst_cuda_launch_n(call->stream, PST_FN_pst_conv_table, p.entries, &p);
    pst_cuda_launch(call->stream, fns[p.form],
                    (int64_t)p.row_tiles * p.col_tiles,
                    (int64_t)p.groups * p.splits, &p);
    if (p.splits > 1)
        pst_cuda_launch_n(call->stream, PST_FN_pst_conv_end_f32, all, &p);
}

/* True if all operands are f32, and numbers of elements and window offsets fit
 * in the parameters. */
static bool fits(const struct pst_call *call, const struct pst_conv *c)
{
    int64_t pad = 1;

    if (!pst_cuda_all(call, PST_F32) || c->groups > MOST_GROUPS)
        return false;
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        if ((c->k[d] - 1) * c->dil[d] > INT16_MAX || c->pad[d] > INT16_MAX ||
            c->stride[d] > INT16_MAX)
            return false;
        pad *= c->in[d] + 2 * c->pad[d];
    }
    return c->n * c->ci * pad < INT_MAX &&
           pst_meta_numel(c->y->meta) < INT_MAX &&
           pst_meta_numel(c->w->meta) < INT_MAX;
}

#define CONVOLUTION(id, name)                                                  \
    static bool id##_fits(const struct pst_call *call)                         \
    {                                                                          \
        struct pst_conv c;                                                     \
                                                                               \
        pst_conv_of_##id(call, &c);                                            \
        return fits(call, &c);                                                 \
    }                                                                          \
    static size_t id##_scratch(const struct pst_call *call,                    \
                               unsigned threads PST_UNUSED)                    \
    {                                                                          \
        struct pst_conv c;                                                     \
                                                                               \
        pst_conv_of_##id(call, &c);                                            \
        return scratch(call, &c);                                              \
    }                                                                          \
    static void id##_run(const struct pst_call *call)                          \
    {                                                                          \
        struct pst_conv c;                                                     \
                                                                               \
        pst_conv_of_##id(call, &c);                                            \
        run(call, &c);                                                         \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {"convolution_" #id "_cuda_f32", PST_ISA_ANY, PST_D(F32),              \
         PST_K_QUEUED | PST_K_ACCUMULATE, id##_fits, id##_scratch, id##_run,   \
         1e-5},                                                                \
    };                                                                         \
    PST_CUDA_KERNELS(name, id##_kernels)

CONVOLUTION(forward, convolution);
CONVOLUTION(input, convolution_backward_input);
CONVOLUTION(weight, convolution_backward_weight);
