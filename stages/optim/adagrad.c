// SPDX-License-Identifier: Apache-2.0
/* torch.optim.Adagrad, with an initial sum of 0. Duchi et al., "Adaptive
 * Subgradient Methods for Online Learning and Stochastic Optimization" (2011).
 */
#include "stages/optim/rows.h"

static void adagrad_numbers(const struct pst_optim_options *options,
                            uint64_t update, struct pst_update *ret)
{
    ret->eps = options->eps;
    ret->lr_divisor = 1.0 + (double)update * options->lr_decay;
}

/*
 * g += weight_decay * p; sum += g^2; in update t = 1, 2, ...:
 * p -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(sum) + eps)
 */
const struct pst_optim pst_optim_adagrad = {
    .name = "adagrad",
    .summary = "gradients divided by the root of the sum of all squares",
    .n_states = 1,
    .states = {"adagrad.sum"},
    .signs = "u",
    .defaults = {.lr = 1e-2, .eps = 1e-10},
    .options = {"lr-decay", "eps", "state-dtype"},
    .task = "update.adagrad",
    .numbers = adagrad_numbers,
};
