// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include "stages/ops/cuda/code/layers/norm.h"
#include "stages/ops/cuda/kernels.h"

static const void *data_of(const struct pst_operand *x)
{
    return x != NULL ? x->data : NULL;
}

static struct pst_cuda_norm params_of(const struct pst_norm *n)
{
    return (struct pst_cuda_norm){.x = data_of(n->x),
                                  .w = data_of(n->w),
                                  .b = data_of(n->b),
                                  .g = data_of(n->g),
                                  .rows = n->rows,
                                  .n = n->n,
                                  .type = pst_cuda_operand_type(n->x),
                                  .step = 1,
                                  .eps = (float)n->eps,
                                  .centre = n->centre};
}

static void launch(const struct pst_call *c, const struct pst_cuda_norm *p)
{
    if (p->type == PST_CUDA_F32)
        pst_cuda_launch_rows(c->stream, PST_FN_pst_norm_warp_f32,
                             PST_FN_pst_norm_block_f32, p->rows, p->n, p);
    else
        pst_cuda_launch_rows(c->stream, PST_FN_pst_norm_warp_16,
                             PST_FN_pst_norm_block_16, p->rows, p->n, p);
}

/* --- forward and the gradient of the input -------------------------------- */

static void forward(const struct pst_call *c, const struct pst_norm *n)
{
    struct pst_cuda_norm p = params_of(n);

    p.y = c->out[0].data;
    if (c->n_out == 3) {
        p.mean = c->out[1].data;
        p.rstd = c->out[2].data;
        p.stats_type = pst_cuda_operand_type(&c->out[1]);
    }
    launch(c, &p);
}

static void layer_run(const struct pst_call *c)
{
    const struct pst_norm n = pst_norm_of_layer(c);

    forward(c, &n);
}

static void rms_run(const struct pst_call *c)
{
    const struct pst_norm n = pst_norm_of_rms(c);

    forward(c, &n);
}

static void input_run(const struct pst_call *c, bool centre)
{
    const struct pst_norm n = pst_norm_of_backward(c, centre, true);
    struct pst_cuda_norm p = params_of(&n);

    p.y = c->out[0].data;
    launch(c, &p);
}

static void layer_input_run(const struct pst_call *c)
{
    input_run(c, true);
}

static void rms_input_run(const struct pst_call *c)
{
    input_run(c, false);
}

/* --- gradients of weight and bias ----------------------------------------- */

/* Returns the rows of a chunk: at least 64, and so many that there are at most
 * 128 chunks. */
static int64_t chunk_of(const struct pst_norm *n)
{
    return PST_MAX(64, (n->rows + 127) / 128);
}

static int64_t chunks_of(const struct pst_norm *n)
{
    return PST_MAX(1, (n->rows + chunk_of(n) - 1) / chunk_of(n));
}

/* Returns the scratch for mean and rstd of each row and for the sums of
 * chunks. */
static size_t affine_scratch(const struct pst_call *c,
                             unsigned threads PST_UNUSED)
{
    const struct pst_norm n = pst_norm_of_backward(c, true, false);

    return (size_t)(n.rows + chunks_of(&n) * n.n) * 2 * sizeof(float);
}

static void affine_run(const struct pst_call *c, bool centre)
{
    const struct pst_norm n = pst_norm_of_backward(c, centre, false);
    struct pst_cuda_norm stats = params_of(&n);
    float *scratch = c->scratch;
    const bool half = stats.type != PST_CUDA_F32;
    const struct pst_cuda_norm_affine p = {.g = n.g->data,
                                           .x = n.x->data,
                                           .stats = scratch,
                                           .partial = scratch + 2 * n.rows,
                                           .dw = c->out[0].data,
                                           .db = c->n_out == 2 ? c->out[1].data
                                                               : NULL,
                                           .rows = n.rows,
                                           .n = n.n,
                                           .chunk = chunk_of(&n),
                                           .chunks = (uint32_t)chunks_of(&n),
                                           .accumulate = c->accumulate,
                                           .type = stats.type};

    stats.g = NULL;
    stats.mean = scratch;
    stats.rstd = scratch + 1;
    stats.stats_type = PST_CUDA_F32;
    stats.step = 2;
    launch(c, &stats);
    pst_cuda_launch(
        c->stream,
        half ? PST_FN_pst_norm_affine_16 : PST_FN_pst_norm_affine_f32,
        (n.n + PST_CUDA_NORM_COLS - 1) / PST_CUDA_NORM_COLS, p.chunks, &p);
    pst_cuda_launch_n(c->stream,
                      half ? PST_FN_pst_norm_affine_end_16
                           : PST_FN_pst_norm_affine_end_f32,
                      n.n, &p);
}

static void layer_affine_run(const struct pst_call *c)
{
    affine_run(c, true);
}

static void rms_affine_run(const struct pst_call *c)
{
    affine_run(c, false);
}

/* --- kernels ---------------------------------------------------------------
 */

/* True for operands of one dtype. */
static bool backward_supports(const struct pst_call *c)
{
    return pst_cuda_all(c, c->in[0].meta->dtype);
}

/* True for operands of one dtype; mean and rstd of 16 bits may be f32. Rows
 * must not be empty, since a mean of nothing is NaN. */
static bool forward_supports(const struct pst_call *c)
{
    struct pst_call one = *c;

    one.n_out = 1;
    return backward_supports(&one) &&
           (c->n_out == 1 ||
            (pst_meta_numel(c->in[0].meta) > 0 &&
             pst_cuda_all_of(c, PST_D(F32) | 1u << c->in[0].meta->dtype)));
}

#define KERNEL(id, bits, fits, bytes, fn, within)                              \
    static const struct pst_kernel id##_kernels[] = {                          \
        {"cuda_" #id "_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED | (bits),   \
         fits, bytes, fn, within},                                             \
        {"cuda_" #id "_16", PST_ISA_ANY, PST_D_16, PST_K_QUEUED | (bits),      \
         fits, bytes, fn, within}};                                            \
    PST_CUDA_KERNELS(id, id##_kernels)

KERNEL(layer_norm, PST_K_INPLACE_0, forward_supports, NULL, layer_run, 1e-5);
KERNEL(native_layer_norm, PST_K_INPLACE_0, forward_supports, NULL, layer_run,
       1e-5);
KERNEL(rms_norm, PST_K_INPLACE_0, forward_supports, NULL, rms_run, 1e-5);
KERNEL(layer_norm_backward_input, PST_K_INPLACE_0, backward_supports, NULL,
       layer_input_run, 2e-5);
KERNEL(rms_norm_backward_input, PST_K_INPLACE_0, backward_supports, NULL,
       rms_input_run, 2e-5);
KERNEL(layer_norm_backward_weight, PST_K_ACCUMULATE, backward_supports,
       affine_scratch, layer_affine_run, 2e-5);
KERNEL(rms_norm_backward_weight, PST_K_ACCUMULATE, backward_supports,
       affine_scratch, rms_affine_run, 2e-5);
KERNEL(layer_norm_backward_affine, 0, backward_supports, affine_scratch,
       layer_affine_run, 2e-5);
