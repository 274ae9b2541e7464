// SPDX-License-Identifier: Apache-2.0
/* torch.optim.SGD, with momentum as there: the rate is outside of the sum. */
#include "stages/ops/simd/simd.h"
#include "stages/optim/rows.h"

struct sgd {
    const struct pst_optim_options *options;
    const struct pst_simd_ops *simd;
    int64_t n;
    float *param, *momentum; /* momentum NULL: none */
    const float *grad;
    double lr, grad_scale;
    bool first;
};

static void sgd_part(void *ctx, unsigned part, unsigned parts)
{
    const struct sgd *s = ctx;
    int64_t i, end;

    pst_pool_share(s->n, PST_OPTIM_GRAIN, part, parts, &i, &end);
    if (i >= end)
        return;
    s->simd->sgd(end - i, s->param + i, s->grad + i,
                 s->momentum != NULL ? s->momentum + i : NULL, s->lr,
                 s->options->momentum, s->options->dampening,
                 s->options->weight_decay, s->options->nesterov, s->first,
                 s->grad_scale);
}

static unsigned sgd_count(const struct pst_optim_options *options)
{
    return options->momentum != 0 ? 1 : 0;
}

static void sgd_step(const struct pst_optim_options *options, uint64_t step,
                     double lr, double grad_scale, int64_t n, float *param,
                     const float *grad, float *const *states, enum pst_isa isa,
                     struct pst_pool *pool)
{
    struct sgd s = {
        .options = options,
        .simd = pst_simd_best(isa),
        .n = n,
        .param = param,
        .momentum = sgd_count(options) > 0 ? states[0] : NULL,
        .grad = grad,
        .lr = lr,
        .grad_scale = grad_scale,
        .first = step == 0,
    };

    pst_pool_run(pool, sgd_part, &s);
}

const struct pst_optim pst_optim_sgd = {
    .name = "sgd",
    .summary = "gradient descent, with momentum if asked for",
    .n_states = 1,
    .states = {"sgd.momentum"},
    .defaults = {.lr = 1e-3},
    .count_states = sgd_count,
    .step = sgd_step,
};
