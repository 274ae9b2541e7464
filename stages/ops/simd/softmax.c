// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/simd/exprow.h"

/* Rows of -inf become NaN through -inf - -inf. */
static void softmax(int64_t rows, int64_t n, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float scale = 1.0f / pst_row_exp(n, x, pst_row_max(n, x), y);

        for (int64_t i = 0; i < n; i++)
            y[i] *= scale;
    }
}

static void log_softmax(int64_t rows, int64_t n, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float max = pst_row_max(n, x);
        const float log_sum = pst_vm_log(pst_row_sum_exp(n, x, max));

#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] - max - log_sum;
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
