// SPDX-License-Identifier: Apache-2.0
/* Binary cross entropy of probabilities and of logits. */
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/pairs.h"

#include <math.h>

/* Returns -w (t log p + (1 - t) log(1 - p)) for x = {p, t, w}; logarithms are
 * at least -100, as in PyTorch. */
static double bce(const double *x, double s PST_UNUSED)
{
    const double yes = fmax(log(x[0]), -100.0);
    const double no = fmax(log1p(-x[0]), -100.0);

    return -x[2] * (x[1] * yes + (1.0 - x[1]) * no);
}

static double bce_slope(const double *x, double s PST_UNUSED, unsigned k)
{
    if (k == 1)
        return x[2] * (log1p(-x[0]) - log(x[0]));
    return x[2] * (x[0] - x[1]) / fmax((1.0 - x[0]) * x[0], 1e-12);
}

/* Returns log(1 + exp(-x)). */
static double softplus_of_minus(double x)
{
    return log1p(exp(-fabs(x))) + fmax(-x, 0.0);
}

/* Returns w ((1 - t) z + (1 + (v - 1) t) log(1 + exp(-z))) for x = {z, t, w,
 * v}. */
static double bce_logits(const double *x, double s PST_UNUSED)
{
    return x[2] * ((1.0 - x[1]) * x[0] +
                   (1.0 + (x[3] - 1.0) * x[1]) * softplus_of_minus(x[0]));
}

static double bce_logits_slope(const double *x, double s PST_UNUSED, unsigned k)
{
    const double t = x[3] * x[1];

    if (k == 1)
        return x[2] * ((x[3] - 1.0) * softplus_of_minus(x[0]) - x[0]);
    return x[2] * ((t + 1.0 - x[1]) / (1.0 + exp(-x[0])) - t);
}

static const struct pst_pairs binary_cross_entropy = {.n = 3,
                                                      .n_slopes = 2,
                                                      .n_args = 4,
                                                      .reduction = 3,
                                                      .equal = true,
                                                      .unit = true,
                                                      .value = bce,
                                                      .slope = bce_slope};
static const struct pst_pairs binary_cross_entropy_with_logits = {
    .n = 4,
    .n_slopes = 2,
    .n_args = 5,
    .reduction = 4,
    .equal = true,
    .value = bce_logits,
    .slope = bce_logits_slope};

PST_PAIRS_FAST(
    binary_cross_entropy, PST_PAIRS_WITHOUT,
    "Tensor self, Tensor target, Tensor? weight=None, int reduction=1",
    "Tensor self, Tensor target, Tensor? weight, int reduction");
PST_PAIRS_FAST(
    binary_cross_entropy_with_logits, PST_PAIRS_WITH,
    "Tensor self, Tensor target, Tensor? weight=None, Tensor? "
    "pos_weight=None, int reduction=1",
    "Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, "
    "int reduction");
