// SPDX-License-Identifier: Apache-2.0
/* torch.optim.SGD; as there, momentum accumulates gradients without the
 * learning rate. */
#include "stages/optim/rows.h"

static unsigned sgd_count(const struct pst_optim_options *options)
{
    return options->momentum != 0 ? 1 : 0;
}

static void sgd_numbers(const struct pst_optim_options *options,
                        uint64_t update, struct pst_update *ret)
{
    ret->momentum = options->momentum;
    ret->dampening = options->dampening;
    ret->nesterov = options->nesterov;
    ret->first = update == 0;
}

const struct pst_optim pst_optim_sgd = {
    .name = "sgd",
    .summary = "gradient descent, with momentum if asked for",
    .n_states = 1,
    .states = {"sgd.momentum"},
    .signs = "s",
    .defaults = {.lr = 1e-3},
    .options = {"momentum", "dampening", "nesterov", "state-dtype"},
    .count_states = sgd_count,
    .task = "update.sgd",
    .numbers = sgd_numbers,
};
