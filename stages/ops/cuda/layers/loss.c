// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/cross_entropy.h"

#include "stages/ops/cuda/code/layers/loss.h"
#include "stages/ops/cuda/fault.h"
#include "stages/ops/cuda/kernels.h"

/* Kernels for f32 and for 16 bits. */
enum { SUM, DIVISOR, N_FLAT };
static const enum pst_cuda_fn flat[2][N_FLAT] = {
    {PST_FN_pst_loss_sum_f32, PST_FN_pst_loss_divisor_f32},
    {PST_FN_pst_loss_sum_16, PST_FN_pst_loss_divisor_16},
};
enum { FORWARD, BACKWARD, N_BY_ROW };
static const struct {
    enum pst_cuda_fn warp, block;
} by_row[2][N_BY_ROW] = {
    {{PST_FN_pst_loss_warp_f32, PST_FN_pst_loss_block_f32},
     {PST_FN_pst_loss_grad_warp_f32, PST_FN_pst_loss_grad_block_f32}},
    {{PST_FN_pst_loss_warp_16, PST_FN_pst_loss_block_16},
     {PST_FN_pst_loss_grad_warp_16, PST_FN_pst_loss_grad_block_16}},
};

static void launch_flat(const struct pst_call *c, unsigned kernel,
                        const struct pst_cuda_loss *p)
{
    pst_cuda_launch(c->stream, flat[p->type != PST_CUDA_F32][kernel], 1, 1, p);
}

static void launch_rows(const struct pst_call *c, unsigned kernel,
                        const struct pst_cuda_loss *p)
{
    const bool half = p->type != PST_CUDA_F32;

    pst_cuda_launch_rows(c->stream, by_row[half][kernel].warp,
                         by_row[half][kernel].block, p->n, p->classes, p);
}

static struct pst_cuda_loss params_of(const struct pst_call *c,
                                      const struct pst_classes *p)
{
    return (struct pst_cuda_loss){
        .x = p->x->data,
        .target = p->target->data,
        .w = p->weight != NULL ? p->weight->data : NULL,
        .n = p->n * p->d,
        .classes = p->classes,
        .d = p->d,
        .ignore = p->ignore,
        .smoothing = (float)p->smoothing,
        .wide = p->target->meta->dtype == PST_I64,
        .mean = p->reduction == PST_REDUCE_MEAN,
        .each = p->reduction == PST_REDUCE_NONE,
        .type = pst_cuda_operand_type(p->x),
        .fault = pst_cuda_fault_of(c, PST_FAULT_TARGET_RANGE)};
}

/* --- forward ----------------------------------------------------------------
 */

/* Returns the scratch for the losses and the weights of the targets. */
static size_t forward_scratch(const struct pst_call *c,
                              unsigned threads PST_UNUSED)
{
    const struct pst_classes p = pst_entropy_classes(c, 0);

    return p.reduction == PST_REDUCE_NONE
               ? 0
               : (size_t)(p.n * p.d) * 2 * sizeof(float);
}

static void forward_run(const struct pst_call *c)
{
    const struct pst_classes of = pst_entropy_classes(c, 0);
    struct pst_cuda_loss p = params_of(c, &of);

    p.losses = p.each ? c->out[0].data : c->scratch;
    p.losses_type = p.each ? p.type : PST_CUDA_F32;
    p.weights = p.mean ? (float *)c->scratch + p.n : NULL;
    launch_rows(c, FORWARD, &p);
    p.sum = c->out[0].data;
    if (!p.each)
        launch_flat(c, SUM, &p);
}

/* --- backward ---------------------------------------------------------------
 */

/* Returns the scratch for the mean's divisor. */
static size_t backward_scratch(const struct pst_call *c,
                               unsigned threads PST_UNUSED)
{
    return c->args[4].i == PST_REDUCE_MEAN ? sizeof(double) : 0;
}

static void backward_run(const struct pst_call *c)
{
    const struct pst_classes of = pst_entropy_classes(c, 1);
    struct pst_cuda_loss p = params_of(c, &of);

    p.g = c->in[0].data;
    p.losses = c->out[0].data;
    p.losses_type = p.type;
    p.divisor = p.mean ? c->scratch : NULL;
    if (p.mean && p.n > 0)
        launch_flat(c, DIVISOR, &p);
    launch_rows(c, BACKWARD, &p);
}

/* --- kernels ----------------------------------------------------------------
 */

/* True for one dtype with class indices; with smoothing only without weights.
 */
static bool fits(const struct pst_call *c, unsigned first)
{
    const struct pst_classes p = pst_entropy_classes(c, first);
    const enum pst_dtype dtype = p.x->meta->dtype;
    const enum pst_dtype target = p.target->meta->dtype;

    return c->out[0].meta->dtype == dtype &&
           (target == PST_I64 || target == PST_I32) &&
           (p.weight == NULL ||
            (p.weight->meta->dtype == dtype && p.smoothing == 0.0));
}

static bool forward_supports(const struct pst_call *c)
{
    return fits(c, 0);
}

static bool backward_supports(const struct pst_call *c)
{
    return fits(c, 1) && c->in[0].meta->dtype == c->in[1].meta->dtype;
}

static const struct pst_kernel forward_kernels[] = {
    {"cuda_cross_entropy_loss_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED,
     forward_supports, forward_scratch, forward_run, 1e-5},
    {"cuda_cross_entropy_loss_16", PST_ISA_ANY, PST_D_16, PST_K_QUEUED,
     forward_supports, forward_scratch, forward_run, 1e-5},
};
PST_CUDA_KERNELS(cross_entropy_loss, forward_kernels);

static const struct pst_kernel backward_kernels[] = {
    {"cuda_cross_entropy_backward_f32", PST_ISA_ANY, PST_D(F32),
     PST_K_QUEUED | PST_K_INPLACE_1, backward_supports, backward_scratch,
     backward_run, 1e-5},
    {"cuda_cross_entropy_backward_16", PST_ISA_ANY, PST_D_16,
     PST_K_QUEUED | PST_K_INPLACE_1, backward_supports, backward_scratch,
     backward_run, 1e-5},
};
PST_CUDA_KERNELS(cross_entropy_backward, backward_kernels);
