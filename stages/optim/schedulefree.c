// SPDX-License-Identifier: Apache-2.0
/* Schedule-free AdamW: Defazio et al., "The Road Less Scheduled" (2024,
 * arXiv:2405.15682), algorithm 1, with the defaults of the authors'
 * AdamWScheduleFree (r = 0, weight_lr_power = 2). */
#include "stages/optim/rows.h"

#include <math.h>

static void schedulefree_numbers(const struct pst_optim_options *options,
                                 uint64_t update, struct pst_update *ret)
{
    ret->beta1 = options->beta1;
    ret->beta2 = options->beta2;
    ret->eps = options->eps;
    ret->bias2 = 1.0 - pow(options->beta2, (double)update + 1.0);
    ret->first = update == 0;
}

/*
 * Gradients are those at the parameter p; z = x = p before the first update.
 * v = beta2 v + (1 - beta2) g^2; in update t = 1, 2, ..., with the rates lr_i
 * and their largest values top_i = max(lr_1, ..., lr_i):
 * z -= lr (g / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p);
 * x += c (z - x), c = top_t^2 / (top_1^2 + ... + top_t^2);
 * p = z + beta1 (x - z)
 */
const struct pst_optim pst_optim_schedulefree = {
    .name = "schedulefree",
    .summary = "AdamW whose average replaces the fall of the learning rate",
    .n_states = 3,
    .states = {"schedulefree.z", "schedulefree.v", "schedulefree.x"},
    .average = 3,
    .signs = "pup",
    .defaults = {.lr = 2.5e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .options = {"beta1", "beta2", "eps", "state-dtype"},
    .task = "update.schedulefree",
    .numbers = schedulefree_numbers,
};
