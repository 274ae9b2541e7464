// SPDX-License-Identifier: Apache-2.0
/* torch.optim.RMSprop; centered as in Graves, "Generating Sequences With
 * Recurrent Neural Networks" (2013). */
#include "stages/optim/rows.h"

/* The states in use are the first ones: `centered` without momentum has an
 * unused second one, which stays zero. */
static unsigned rmsprop_count(const struct pst_optim_options *options)
{
    if (options->centered)
        return 3;
    return options->momentum != 0 ? 2 : 1;
}

static void rmsprop_numbers(const struct pst_optim_options *options,
                            uint64_t update, struct pst_update *ret)
{
    (void)update;
    ret->alpha = options->alpha;
    ret->eps = options->eps;
    ret->momentum = options->momentum;
    ret->centered = options->centered;
}

/*
 * g += weight_decay * p; v = alpha v + (1 - alpha) g^2;
 * centered: mean = alpha mean + (1 - alpha) g, and v - mean^2 instead of v:
 * d = g / (sqrt(v) + eps);
 * momentum: b = momentum b + d, and b instead of d:
 * p -= lr * d
 */
const struct pst_optim pst_optim_rmsprop = {
    .name = "rmsprop",
    .summary = "gradients divided by the root of their mean square",
    .n_states = 3,
    .states = {"rmsprop.v", "rmsprop.momentum", "rmsprop.mean"},
    .signs = "uss",
    .defaults = {.lr = 1e-2, .alpha = 0.99, .eps = 1e-8},
    .options = {"alpha", "eps", "momentum", "centered", "state-dtype"},
    .count_states = rmsprop_count,
    .task = "update.rmsprop",
    .numbers = rmsprop_numbers,
};
