// SPDX-License-Identifier: Apache-2.0
/* The operators that batch, group and instance norm are composed of. */
#include "stages/ops/norm/channel.h"

#include <limits.h>

#include "stages/ops/cuda/code/layers/channel.h"
#include "stages/ops/cuda/elements/fold.h"
#include "stages/ops/cuda/kernels.h"

static const void *data_of(const struct pst_operand *x)
{
    return x != NULL ? x->data : NULL;
}

/* True if the device supports the call. Absent operands have an empty meta. */
static bool supports(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;

    for (unsigned i = 0; i < c->n_in; i++)
        if (pst_meta_numel(c->in[i].meta) > 0 && c->in[i].meta->dtype != dtype)
            return false;
    return pst_meta_numel(c->in[0].meta) <= INT_MAX &&
           pst_meta_numel(c->out[0].meta) > 0;
}

static bool is_wide(const struct pst_call *c)
{
    return c->in[0].meta->dtype == PST_F64;
}

/* --- statistics and sums -------------------------------------------------- */

/* Returns a fold with results (blocks, groups), each over the images of a block
 * and the channels of a group. */
static struct pst_cuda_fold fold_of(const struct pst_norm_channels *p,
                                    int64_t groups)
{
    const int64_t images = p->n / p->blocks, channels = p->c / groups;
    const struct pst_meta kept = {
        .dtype = PST_F32,
        .rank = 2,
        .size = {p->blocks, groups},
        .stride = {images * p->c * p->s, channels * p->s}};
    const struct pst_meta gone = {.dtype = PST_F32,
                                  .rank = 2,
                                  .size = {images, channels * p->s},
                                  .stride = {p->c * p->s, 1}};
    const struct pst_meta *metas[2] = {&kept, &gone};
    struct pst_cuda_fold f = {.x = data_of(p->x), .second = PST_CUDA_FOLD_NONE};

    (void)pst_cuda_nd_make(1, &metas[0], &f.kept);
    (void)pst_cuda_nd_make(1, &metas[1], &f.gone);
    return f;
}

static struct pst_cuda_fold stats_of(const struct pst_call *c)
{
    const struct pst_norm_channels p = pst_norm_channels_of_stats(c);
    struct pst_cuda_fold f = fold_of(&p, p.g);

    f.fold = PST_CUDA_FOLD_sum;
    f.second = PST_CUDA_FOLD_squares;
    f.end = PST_CUDA_END_NORM;
    f.correction = p.eps;
    f.y = c->out[0].data;
    f.also[0] = c->out[1].data;
    f.also[1] = c->out[2].data;
    return f;
}

static struct pst_cuda_fold sums_of(const struct pst_call *c)
{
    const struct pst_norm_channels p = pst_norm_channels_of_sums(c);
    struct pst_cuda_fold f = fold_of(&p, p.c);

    f.g = data_of(p.dy);
    f.mean = data_of(p.mean);
    f.rstd = data_of(p.rstd);
    f.channels = (uint32_t)p.c;
    f.groups = (uint32_t)p.g;
    f.y = c->out[0].data;
    f.also[0] = c->out[1].data;
    return f;
}

#define FOLD(id, name)                                                         \
    static size_t id##_scratch(const struct pst_call *c,                       \
                               unsigned threads PST_UNUSED)                    \
    {                                                                          \
        struct pst_cuda_fold f = id##_of(c);                                   \
                                                                               \
        return pst_cuda_fold_scratch(&f);                                      \
    }                                                                          \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        static const struct pst_cuda_folding foldings[2] = {                   \
            PST_CUDA_FOLDING(name, f32), PST_CUDA_FOLDING(name, f64)};         \
        struct pst_cuda_fold f = id##_of(c);                                   \
                                                                               \
        pst_cuda_fold_run(c, &foldings[is_wide(c)], &f);                       \
    }
FOLD(stats, pst_fold)
FOLD(sums, pst_pair)

/* --- norms and gradients -------------------------------------------------- */

static struct pst_cuda_channels params_of(const struct pst_norm_channels *p)
{
    return (struct pst_cuda_channels){.x = data_of(p->x),
                                      .w = data_of(p->w),
                                      .b = data_of(p->b),
                                      .g = data_of(p->dy),
                                      .mean = data_of(p->mean),
                                      .rstd = data_of(p->rstd),
                                      .sum_a = data_of(p->sum_a),
                                      .sum_b = data_of(p->sum_b),
                                      .n = (uint32_t)p->n,
                                      .c = (uint32_t)p->c,
                                      .s = (uint32_t)p->s,
                                      .blocks = (uint32_t)p->blocks,
                                      .groups = (uint32_t)p->g,
                                      .count =
                                          (double)pst_norm_channels_count(p)};
}

static void run_channels(const struct pst_call *c,
                         const struct pst_norm_channels *p)
{
    struct pst_cuda_channels q = params_of(p);

    q.y = c->out[0].data;
    if (q.sum_a != NULL) {
        q.means = c->scratch;
        pst_cuda_launch_n(c->stream,
                          is_wide(c) ? PST_FN_pst_channel_means_f64
                                     : PST_FN_pst_channel_means_f32,
                          p->blocks * p->g, &q);
    }
    pst_cuda_launch_n(c->stream,
                      is_wide(c) ? PST_FN_pst_channel_apply_f64
                                 : PST_FN_pst_channel_apply_f32,
                      p->n * p->c * p->s, &q);
}

static void apply_run(const struct pst_call *c)
{
    const struct pst_norm_channels p = pst_norm_channels_of_apply(c);

    run_channels(c, &p);
}

static void input_run(const struct pst_call *c)
{
    const struct pst_norm_channels p = pst_norm_channels_of_input(c);

    run_channels(c, &p);
}

static size_t input_scratch(const struct pst_call *c,
                            unsigned threads PST_UNUSED)
{
    const struct pst_norm_channels p = pst_norm_channels_of_input(c);

    return (size_t)(2 * p.blocks * p.g) * pst_dtype_size(c->in[0].meta->dtype);
}

/* --- rows ----------------------------------------------------------------- */

#define KERNELS(id, bits, bytes)                                               \
    static const struct pst_kernel id##_kernels[] = {                          \
        {"norm_" #id "_cuda_f32", PST_ISA_ANY, PST_D(F32),                     \
         PST_K_QUEUED | (bits), supports, bytes, id##_run, 2e-5},              \
        {"norm_" #id "_cuda_f64", PST_ISA_ANY, PST_D(F64),                     \
         PST_K_QUEUED | (bits), supports, bytes, id##_run, 1e-12},             \
    };                                                                         \
    PST_CUDA_KERNELS(norm_##id, id##_kernels)
KERNELS(stats, 0, stats_scratch);
KERNELS(apply, PST_K_INPLACE_0, NULL);
KERNELS(sums, 0, sums_scratch);
KERNELS(input, PST_K_INPLACE_0, input_scratch);
