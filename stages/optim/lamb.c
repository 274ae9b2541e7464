// SPDX-License-Identifier: Apache-2.0
/* LAMB: You et al., "Large Batch Optimization for Deep Learning" (2019),
 * algorithm 2, with its bias correction, and phi(x) = x. */
#include "stages/optim/rows.h"

/*
 * m and v as in adam.c, but g without weight decay; in update t = 1, 2, ...:
 * bias1 = 1 - beta1^t; bias2 = 1 - beta2^t;
 * u = m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p;
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
    .numbers = pst_optim_set_moments,
};
