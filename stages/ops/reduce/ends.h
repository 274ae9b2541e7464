// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_ENDS_H
#define PENSTOCK_STAGES_OPS_REDUCE_ENDS_H
/*
 * Functions of reductions with one or two passes over the elements.
 * pst_between_X computes the number m that the second pass needs, which is then
 * rounded to the dtype of the elements; pst_end_X computes the result. Compiled
 * as C and as device code, which defines PST_ALWAYS_INLINE before it includes
 * this header.
 */
#ifndef __cplusplus
#include <math.h>
#include <stdint.h>

#include "stages/base/macros.h"
#endif

static PST_ALWAYS_INLINE double pst_end_mean(double sum, int64_t n)
{
    return sum / (double)n;
}

/* Returns the variance. squares: the sum of (x - m)^2; `off` corrects for the
 * rounding of the mean m. */
static PST_ALWAYS_INLINE double pst_end_var(double sum, double m,
                                            double squares, int64_t n,
                                            double correction)
{
    const double off = sum / (double)n - m;
    const double by = (double)n - correction;

    return fmax(squares - (double)n * off * off, 0.0) / (by > 0.0 ? by : 0.0);
}

/* Returns the number that the second pass subtracts from each element: the
 * maximum, or 0 if the maximum is not finite. */
static PST_ALWAYS_INLINE double pst_between_logsumexp(double max)
{
    return fabs(max) < (double)INFINITY ? max : 0.0;
}

static PST_ALWAYS_INLINE double pst_end_logsumexp(double max, double m,
                                                  double sum)
{
    return fabs(max) < (double)INFINITY ? m + log(sum) : max;
}

#endif
