// SPDX-License-Identifier: Apache-2.0
/* torch.optim.AdamW (Loshchilov and Hutter, "Decoupled weight decay
 * regularization", 2019). */
#include <math.h>

#include "stages/ops/simd/simd.h"
#include "stages/optim/optim.h"
#include "stages/optim/share.h"

struct adamw {
    const struct pst_simd_ops *ops;
    const struct pst_optim_options *o;
    double lr, scale, bias1, bias2;
    int64_t n;
    float *param, *m, *v;
    const float *grad;
};

static void part(void *ctx, unsigned index, unsigned parts)
{
    const struct adamw *a = ctx;
    int64_t begin, end;

    pst_pool_share(a->n, PST_OPTIM_GRAIN, index, parts, &begin, &end);
    if (begin < end)
        a->ops->adamw(end - begin, a->param + begin, a->grad + begin,
                      a->m + begin, a->v + begin, a->lr, a->o->beta1,
                      a->o->beta2, a->o->eps, a->o->weight_decay, a->bias1,
                      a->bias2, a->scale);
}

static void adamw_step(const struct pst_optim_options *options, uint64_t step,
                       double lr, double grad_scale, int64_t n, float *param,
                       const float *grad, float *const *states,
                       enum pst_isa isa, struct pst_pool *pool)
{
    struct adamw a = {
        .ops = pst_simd_best(isa),
        .o = options,
        .lr = lr,
        .scale = grad_scale,
        .bias1 = 1 - pow(options->beta1, (double)(step + 1)),
        .bias2 = 1 - pow(options->beta2, (double)(step + 1)),
        .n = n,
        .param = param,
        .m = states[0],
        .v = states[1],
        .grad = grad,
    };

    pst_pool_run(pool, part, &a);
}

const struct pst_optim pst_optim_adamw = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay",
    .n_states = 2,
    .states = {"adamw.m", "adamw.v"},
    .step = adamw_step,
};
