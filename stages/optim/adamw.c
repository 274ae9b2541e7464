// SPDX-License-Identifier: Apache-2.0
/* torch.optim.AdamW: Loshchilov and Hutter, "Decoupled weight decay
 * regularization" (2019). */
#include "stages/ops/simd/simd.h"
#include "stages/optim/rows.h"

#include <math.h>

struct adamw {
    const struct pst_optim_options *options;
    const struct pst_simd_ops *simd;
    int64_t n;
    float *param, *m, *v;
    const float *grad;
    double lr, bias1, bias2, grad_scale;
};

static void adamw_part(void *ctx, unsigned part, unsigned parts)
{
    const struct adamw *a = ctx;
    int64_t i, end;

    pst_pool_share(a->n, PST_OPTIM_GRAIN, part, parts, &i, &end);
    if (i >= end)
        return;
    a->simd->adamw(end - i, a->param + i, a->grad + i, a->m + i, a->v + i,
                   a->lr, a->options->beta1, a->options->beta2, a->options->eps,
                   a->options->weight_decay, a->bias1, a->bias2, a->grad_scale);
}

static void adamw_step(const struct pst_optim_options *options, uint64_t step,
                       double lr, double grad_scale, int64_t n, float *param,
                       const float *grad, float *const *states,
                       enum pst_isa isa, struct pst_pool *pool)
{
    const double t = (double)step + 1.0;
    struct adamw a = {
        .options = options,
        .simd = pst_simd_best(isa),
        .n = n,
        .param = param,
        .m = states[0],
        .v = states[1],
        .grad = grad,
        .lr = lr,
        .bias1 = 1.0 - pow(options->beta1, t),
        .bias2 = 1.0 - pow(options->beta2, t),
        .grad_scale = grad_scale,
    };

    pst_pool_run(pool, adamw_part, &a);
}

const struct pst_optim pst_optim_adamw = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay",
    .n_states = 2,
    .states = {"adamw.m", "adamw.v"},
    .defaults = {.lr = 1e-3,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-8,
                 .weight_decay = 1e-2},
    .step = adamw_step,
};
