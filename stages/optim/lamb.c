// SPDX-License-Identifier: Apache-2.0
/* LAMB: You et al., "Large Batch Optimization for Deep Learning" (2019),
 * algorithm 2, with its bias correction, and phi(x) = x. */
#include "stages/optim/rows.h"

#include <math.h>

static void lamb_numbers(const struct pst_optim_options *options,
                         uint64_t update, struct pst_update *ret)
{
    const double t = (double)update + 1.0;

    ret->beta1 = options->beta1;
    ret->beta2 = options->beta2;
    ret->eps = options->eps;
    ret->bias1 = 1.0 - pow(options->beta1, t);
    ret->bias2 = 1.0 - pow(options->beta2, t);
}

/*
 * m and v as adamw; u = m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p;
 * p -= lr * |p| / |u| * u, where |p| / |u| is 1 if a norm is 0
 */
const struct pst_optim pst_optim_lamb = {
    .name = "lamb",
    .summary = "Adam with a step as large as a share of the parameter's norm",
    .n_states = 2,
    .states = {"lamb.m", "lamb.v"},
    .defaults = {.lr = 1e-3,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-6,
                 .weight_decay = 1e-2},
    .options = {"beta1", "beta2", "eps"},
    .whole = true,
    .task = "update.lamb",
    .numbers = lamb_numbers,
};
