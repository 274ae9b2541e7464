// SPDX-License-Identifier: Apache-2.0
/* torch.optim.Adam and torch.optim.Adamax: weight decay is added to the
 * gradient and enters the moving averages. Kingma and Ba, "Adam: A Method for
 * Stochastic Optimization" (2014), algorithms 1 and 2. */
#include "stages/optim/rows.h"

#include <math.h>

void pst_optim_set_moments(const struct pst_optim_options *options,
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
 * g += weight_decay * p; m = beta1 m + (1 - beta1) g;
 * v = beta2 v + (1 - beta2) g^2; in update t = 1, 2, ...:
 * p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
 */
const struct pst_optim pst_optim_adam = {
    .name = "adam",
    .summary = "Adam, weight decay in the gradient",
    .n_states = 2,
    .states = {"adam.m", "adam.v"},
    .signs = "su",
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .options = {"beta1", "beta2", "eps", "state-dtype"},
    .task = "update.adam",
    .numbers = pst_optim_set_moments,
};

/*
 * g += weight_decay * p; m = beta1 m + (1 - beta1) g;
 * u = max(beta2 u, |g| + eps); in update t = 1, 2, ...:
 * p -= lr / (1 - beta1^t) * m / u
 */
const struct pst_optim pst_optim_adamax = {
    .name = "adamax",
    .summary = "Adam by the largest recent gradient instead of the squares",
    .n_states = 2,
    .states = {"adamax.m", "adamax.u"},
    .signs = "su",
    .defaults = {.lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .options = {"beta1", "beta2", "eps", "state-dtype"},
    .task = "update.adamax",
    .numbers = pst_optim_set_moments,
};
