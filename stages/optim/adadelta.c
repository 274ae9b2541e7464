// SPDX-License-Identifier: Apache-2.0
/* torch.optim.Adadelta. Zeiler, "ADADELTA: An Adaptive Learning Rate Method"
 * (2012), algorithm 1. */
#include "stages/optim/rows.h"

static void adadelta_numbers(const struct pst_optim_options *options,
                             uint64_t update, struct pst_update *ret)
{
    (void)update;
    ret->rho = options->rho;
    ret->eps = options->eps;
}

/*
 * g += weight_decay * p; v = rho v + (1 - rho) g^2;
 * d = sqrt(s + eps) / sqrt(v + eps) * g; s = rho s + (1 - rho) d^2; p -= lr * d
 */
const struct pst_optim pst_optim_adadelta = {
    .name = "adadelta",
    .summary = "steps as large as recent ones, by the mean squares of both",
    .n_states = 2,
    .states = {"adadelta.v", "adadelta.s"},
    .signs = "uu",
    .defaults = {.lr = 1.0, .rho = 0.9, .eps = 1e-6},
    .options = {"rho", "eps", "state-dtype"},
    .task = "update.adadelta",
    .numbers = adadelta_numbers,
};
