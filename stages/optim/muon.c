// SPDX-License-Identifier: Apache-2.0
/* torch.optim.Muon. Jordan et al., "Muon: An optimizer for hidden layers in
 * neural networks" (2024). The update is made orthogonal in f32, in torch in
 * bf16. */
#include "stages/optim/rows.h"

#include "stages/ops/cpu/muon.h"

static void muon_numbers(const struct pst_optim_options *options,
                         uint64_t update, struct pst_update *ret)
{
    (void)update;
    ret->momentum = options->momentum;
    ret->nesterov = options->nesterov;
    ret->eps = options->eps;
    ret->ns_steps = (unsigned)options->ns_steps;
    ret->match_rms = options->match_rms_adamw;
}

/*
 * m += (1 - momentum) (g - m); u = nesterov ? g + momentum (m - g) : m;
 * p -= lr * weight_decay * p; p -= lr * f * orthogonal(u).
 * orthogonal(u) is ns_steps Newton-Schulz iterations
 *     x = a x + (b x x^T + c (x x^T)^2) x
 * from x = u / max(|u|, eps), with the constants a, b, c of ops/cpu/muon.c.
 * f = sqrt(max(1, rows / columns)) or, to match the RMS of AdamW,
 * 0.2 sqrt(max(rows, columns)).
 */
const struct pst_optim pst_optim_muon = {
    .name = "muon",
    .summary = "matrices by an orthogonal momentum, other parameters by AdamW",
    .n_states = 1,
    .states = {"muon.momentum"},
    .defaults = {.lr = 1e-3,
                 .weight_decay = 0.1,
                 .momentum = 0.95,
                 .nesterov = true,
                 .eps = 1e-7,
                 .ns_steps = 5},
    .options = {"momentum", "nesterov", "eps", "ns-steps", "match-rms-adamw"},
    .whole = true,
    .real_only = true,
    .matrices_only = true,
    .others = "adamw",
    .work = pst_muon_work,
    .task = "update.muon",
    .numbers = muon_numbers,
};
