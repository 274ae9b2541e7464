// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"

#include "stages/ops/simd/lanes.h"
#include "stages/ops/simd/vecmath.h"

static void softmax(int64_t n, int64_t end, float *x)
{
    float max = -INFINITY, sum = 0.0f;

    PST_LANES_MAX(max, n, x[i]);
    /* Nothing allowed (a NaN compares as -inf too, and must stay). */
    if (max == -INFINITY) {
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] == -INFINITY ? 0.0f : x[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            x[i] = pst_vm_exp(x[i] - max);
        PST_LANES_SUM(sum, n, x[i]);
        sum = 1.0f / sum;
        for (int64_t i = 0; i < n; i++)
            x[i] *= sum;
    }
    for (int64_t i = n; i < end; i++)
        x[i] = 0.0f;
}

static void backward(int64_t n, int64_t end, const float *restrict p,
                     float *restrict dp)
{
    float sum = 0.0f;

    PST_LANES_SUM(sum, n, p[i] * dp[i]);
    for (int64_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - sum);
    for (int64_t i = n; i < end; i++)
        dp[i] = 0.0f;
}

const struct pst_sdpa_loops PST_SIMD(pst_sdpa_loops) = {
    .softmax = softmax,
    .backward = backward,
};
