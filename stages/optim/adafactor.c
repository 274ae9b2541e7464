// SPDX-License-Identifier: Apache-2.0
/* torch.optim.Adafactor. Shazeer, Stern, "Adafactor: Adaptive Learning Rates
 * with Sublinear Memory Cost" (2018). */
#include "stages/optim/rows.h"

#include "stages/ops/cpu/adafactor.h"

#include <float.h>
#include <math.h>

enum { ROW, COL, FULL };

/* Parameters with at least two dimensions have a mean square for each row and
 * each column of the matrices in their last two dimensions; other parameters
 * have one for each element. */
static bool adafactor_state(unsigned k, const struct pst_meta *param,
                            struct pst_meta *ret)
{
    const unsigned rank = param->rank;

    if ((rank < 2) != (k == FULL))
        return false;
    *ret = *param;
    if (k == ROW)
        ret->size[rank - 1] = 1;
    if (k == COL)
        ret->size[rank - 2] = 1;
    pst_meta_set_contiguous(ret);
    return true;
}

static void adafactor_numbers(const struct pst_optim_options *options,
                              uint64_t update, struct pst_update *ret)
{
    const double t = (double)update + 1.0;

    ret->share = pow(t, options->beta2_decay);
    ret->most = 1 / sqrt(t);
    ret->eps = options->eps;
    ret->eps2 = options->eps2;
    ret->clip = options->clip_threshold;
}

/*
 * With w = t^beta2_decay: r += w (mean of g^2 in the row - r), c likewise for
 * columns, v = r c / max(mean of r, eps); or v += w (g^2 - v). Then
 * p *= 1 - lr * weight_decay; u = g / sqrt(max(v, eps^2));
 * p -= max(eps2, RMS(p)) min(lr, 1 / sqrt(t)) u / max(1, RMS(u) /
 * clip_threshold), with the RMS of p before the decay
 */
const struct pst_optim pst_optim_adafactor = {
    .name = "adafactor",
    .summary = "the mean squares of rows and columns, not of all elements",
    .n_states = 3,
    .states = {"adafactor.row", "adafactor.col", "adafactor.v"},
    .defaults = {.lr = 0.01,
                 .beta2_decay = -0.8,
                 .eps = FLT_EPSILON,
                 .eps2 = 1e-3,
                 .clip_threshold = 1},
    .options = {"beta2-decay", "eps", "eps2", "clip-threshold"},
    .whole = true,
    .real_only = true,
    .state = adafactor_state,
    .work = pst_adafactor_work,
    .task = "update.adafactor",
    .numbers = adafactor_numbers,
};
