// SPDX-License-Identifier: Apache-2.0
/* Huber, smooth L1 and soft margin loss. */
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/pairs.h"

#include <math.h>

static double sign(double d)
{
    return d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : d;
}

/* For d = x - y: returns d^2 / 2 if |d| < delta, else delta (|d| - delta /
 * 2). */
static double huber(const double *x, double delta)
{
    const double d = fabs(x[0] - x[1]);

    return d < delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}

static double huber_slope(const double *x, double delta, unsigned k)
{
    const double d = x[0] - x[1];

    return (k == 0 ? 1.0 : -1.0) * (fabs(d) <= delta ? d : delta * sign(d));
}

/* Returns the Huber loss divided by beta; |d| if beta is 0. */
static double smooth_l1(const double *x, double beta)
{
    const double d = fabs(x[0] - x[1]);

    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
}

static double smooth_l1_slope(const double *x, double beta, unsigned k)
{
    const double d = x[0] - x[1];

    return (k == 0 ? 1.0 : -1.0) * (fabs(d) < beta ? d / beta : sign(d));
}

/* Returns log(1 + exp(-x y)). */
static double soft_margin(const double *x, double s PST_UNUSED)
{
    return log1p(exp(-x[0] * x[1]));
}

static double soft_margin_slope(const double *x, double s PST_UNUSED,
                                unsigned k)
{
    return -x[1 - k] / (1.0 + exp(x[0] * x[1]));
}

static const struct pst_pairs huber_loss = {.n = 2,
                                            .n_slopes = 2,
                                            .n_args = 4,
                                            .reduction = 2,
                                            .number = 3,
                                            .odd = true,
                                            .value = huber,
                                            .slope = huber_slope};
static const struct pst_pairs smooth_l1_loss = {.n = 2,
                                                .n_slopes = 2,
                                                .n_args = 4,
                                                .reduction = 2,
                                                .number = 3,
                                                .odd = true,
                                                .value = smooth_l1,
                                                .slope = smooth_l1_slope};
static const struct pst_pairs soft_margin_loss = {.n = 2,
                                                  .n_slopes = 1,
                                                  .n_args = 3,
                                                  .reduction = 2,
                                                  .value = soft_margin,
                                                  .slope = soft_margin_slope};

PST_PAIRS_FAST(huber_loss, PST_PAIRS_WITHOUT,
               "Tensor self, Tensor target, int reduction=1, float delta=1.",
               "Tensor self, Tensor target, int reduction, float delta");
PST_PAIRS_FAST(smooth_l1_loss, PST_PAIRS_WITHOUT,
               "Tensor self, Tensor target, int reduction=1, float beta=1.",
               "Tensor self, Tensor target, int reduction, float beta");
PST_PAIRS_FAST(soft_margin_loss, PST_PAIRS_WITHOUT,
               "Tensor self, Tensor target, int reduction=1",
               "Tensor self, Tensor target, int reduction");
