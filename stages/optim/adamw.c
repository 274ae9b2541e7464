// SPDX-License-Identifier: Apache-2.0
/* torch.optim.AdamW: weight decay does not enter the moving averages. */
#include "stages/optim/rows.h"

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
    .numbers = pst_optim_set_moments,
};
