// SPDX-License-Identifier: Apache-2.0
/* torch.optim.AdamW: weight decay does not enter the moving averages. */
#include "stages/optim/rows.h"

#include <math.h>

static void adamw_numbers(const struct pst_optim_options *options,
                          uint64_t update, struct pst_update *ret)
{
    const double t = (double)update + 1.0;

    ret->beta1 = options->beta1;
    ret->beta2 = options->beta2;
    ret->eps = options->eps;
    ret->bias1 = 1.0 - pow(options->beta1, t);
    ret->bias2 = 1.0 - pow(options->beta2, t);
}

const struct pst_optim pst_optim_adamw = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay",
    .n_states = 2,
    .states = {"adamw.m", "adamw.v"},
    .signs = "su",
    .defaults = {.lr = 1e-3,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-8,
                 .weight_decay = 1e-2},
    .options = {"beta1", "beta2", "eps", "state-dtype"},
    .task = "update.adamw",
    .numbers = adamw_numbers,
};
