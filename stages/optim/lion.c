// SPDX-License-Identifier: Apache-2.0
/* Lion: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023),
 * algorithm 2, with the defaults of the authors' implementation. */
#include "stages/optim/rows.h"

static void lion_numbers(const struct pst_optim_options *options,
                         uint64_t update, struct pst_update *ret)
{
    (void)update;
    ret->beta1 = options->beta1;
    ret->beta2 = options->beta2;
}

/*
 * p = (1 - lr * weight_decay) p - lr * sign(beta1 m + (1 - beta1) g), then
 * m = beta2 m + (1 - beta2) g
 */
const struct pst_optim pst_optim_lion = {
    .name = "lion",
    .summary = "the sign of a moving average, with decoupled weight decay",
    .n_states = 1,
    .states = {"lion.m"},
    .signs = "s",
    .defaults = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99},
    .options = {"beta1", "beta2", "state-dtype"},
    .task = "update.lion",
    .numbers = lion_numbers,
};
