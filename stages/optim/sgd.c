// SPDX-License-Identifier: Apache-2.0
/* torch.optim.SGD: momentum, dampening, Nesterov, weight decay. */
#include "stages/ops/simd/simd.h"
#include "stages/optim/optim.h"
#include "stages/optim/share.h"

struct sgd {
    const struct pst_simd_ops *ops;
    const struct pst_optim_options *o;
    double lr, scale;
    int64_t n;
    float *param, *momentum;
    const float *grad;
    bool first;
};

static void part(void *ctx, unsigned index, unsigned parts)
{
    const struct sgd *s = ctx;
    int64_t begin, end;

    pst_pool_share(s->n, PST_OPTIM_GRAIN, index, parts, &begin, &end);
    if (begin < end)
        s->ops->sgd(end - begin, s->param + begin, s->grad + begin,
                    s->momentum != NULL ? s->momentum + begin : NULL, s->lr,
                    s->o->momentum, s->o->dampening, s->o->weight_decay,
                    s->o->nesterov, s->first, s->scale);
}

static void sgd_step(const struct pst_optim_options *options, uint64_t step,
                     double lr, double grad_scale, int64_t n, float *param,
                     const float *grad, float *const *states, enum pst_isa isa,
                     struct pst_pool *pool)
{
    struct sgd s = {
        .ops = pst_simd_best(isa),
        .o = options,
        .lr = lr,
        .scale = grad_scale,
        .n = n,
        .param = param,
        .momentum = options->momentum != 0 ? states[0] : NULL,
        .grad = grad,
        .first = step == 0,
    };

    pst_pool_run(pool, part, &s);
}

const struct pst_optim pst_optim_sgd = {
    .name = "sgd",
    .summary = "stochastic gradient descent, optionally with momentum",
    .n_states = 1,
    .states = {"sgd.momentum"},
    .step = sgd_step,
};
