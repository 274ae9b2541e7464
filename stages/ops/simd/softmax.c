// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/simd/lanes.h"
#include "stages/ops/simd/vecmath.h"

static float row_max(int64_t n, const float *x)
{
    float max = -INFINITY;

    PST_LANES_MAX(max, n, x[i]);
    return max;
}

/* A NaN does not show in the maximum but in the sum. Rows of -inf become NaN
 * through -inf - -inf. */
static void softmax(int64_t rows, int64_t n, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float max = row_max(n, x);
        float sum = 0.0f;

#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = pst_vm_exp(x[i] - max);
        PST_LANES_SUM(sum, n, y[i]);
        sum = 1.0f / sum;
        for (int64_t i = 0; i < n; i++)
            y[i] *= sum;
    }
}

static void log_softmax(int64_t rows, int64_t n, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float max = row_max(n, x);
        float sum = 0.0f;

        PST_LANES_SUM(sum, n, pst_vm_exp(x[i] - max));
        sum = pst_vm_log(sum);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] - max - sum;
    }
}

static void softmax_grad(int64_t rows, int64_t n, const float *g,
                         const float *y, float *dx)
{
    for (int64_t r = 0; r < rows; r++, g += n, y += n, dx += n) {
        float sum = 0.0f;

        PST_LANES_SUM(sum, n, g[i] * y[i]);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            dx[i] = y[i] * (g[i] - sum);
    }
}

static void log_softmax_grad(int64_t rows, int64_t n, const float *g,
                             const float *y, float *dx)
{
    for (int64_t r = 0; r < rows; r++, g += n, y += n, dx += n) {
        float sum = 0.0f;

        PST_LANES_SUM(sum, n, g[i]);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            dx[i] = g[i] - pst_vm_exp(y[i]) * sum;
    }
}

const struct pst_softmax_loops PST_SIMD(pst_softmax_loops) = {
    .softmax = softmax,
    .log_softmax = log_softmax,
    .softmax_grad = softmax_grad,
    .log_softmax_grad = log_softmax_grad,
};
