// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_LAYERS_EXPROW_H
#define PENSTOCK_STAGES_OPS_SIMD_LAYERS_EXPROW_H
/* What every softmax does with a row. */
#include "stages/ops/simd/lanes.h"
#include "stages/ops/simd/vecmath.h"

/* NaN does not show in the maximum; it shows in the sum of exponentials. */
static inline float pst_row_max(int64_t n, const float *x)
{
    float max = -INFINITY;

    PST_LANES_MAX(max, n, x[i]);
    return max;
}

/* Sum of e^(x - max). */
static inline float pst_row_sum_exp(int64_t n, const float *x, float max)
{
    float sum = 0.0f;

    PST_LANES_SUM(sum, n, pst_vm_exp_neg(x[i] - max));
    return sum;
}

/* y = e^(x - max), which may be x; returns their sum. */
static inline float pst_row_exp(int64_t n, const float *x, float max, float *y)
{
    float lane[PST_LANES] = {0};
    int64_t i = 0;

    for (; i + PST_LANES <= n; i += PST_LANES) {
        float e[PST_LANES];

        for (int j = 0; j < PST_LANES; j++)
            e[j] = pst_vm_exp_neg(x[i + j] - max);
        for (int j = 0; j < PST_LANES; j++) {
            y[i + j] = e[j];
            lane[j] += e[j];
        }
    }
    for (int j = 0; i < n; i++, j++) {
        y[i] = pst_vm_exp_neg(x[i] - max);
        lane[j] += y[i];
    }
    return pst_lanes_sum(lane);
}

#endif
