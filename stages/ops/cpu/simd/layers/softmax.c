// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/cpu/simd/layers/exprow.h"

/* A row of -inf becomes NaN, because -inf - -inf is NaN. */
static void softmax(int64_t rows, int64_t n, const void *px, void *py)
{
    const pst_real *x = px;
    pst_real *y = py;

    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const pst_real scale =
            (pst_real)1 / pst_row_exp(n, x, pst_row_max(n, x), y);

        for (int64_t i = 0; i < n; i++)
            y[i] *= scale;
    }
}

static void log_softmax(int64_t rows, int64_t n, const void *px, void *py)
{
    const pst_real *x = px;
    pst_real *y = py;

    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const pst_real max = pst_row_max(n, x);
        const pst_real log_sum = pst_real_log(pst_row_sum_exp(n, x, max));

        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] - max - log_sum;
    }
}

static void softmax_grad(int64_t rows, int64_t n, const void *pg,
                         const void *py, void *pdx)
{
    const pst_real *g = pg, *y = py;
    pst_real *dx = pdx;

    for (int64_t r = 0; r < rows; r++, g += n, y += n, dx += n) {
        pst_real sum = 0;

        PST_LANES_SUM(sum, n, g[i] * y[i]);
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            dx[i] = y[i] * (g[i] - sum);
    }
}

static void log_softmax_grad(int64_t rows, int64_t n, const void *pg,
                             const void *py, void *pdx)
{
    const pst_real *g = pg, *y = py;
    pst_real *dx = pdx;

    for (int64_t r = 0; r < rows; r++, g += n, y += n, dx += n) {
        pst_real sum = 0;

        PST_LANES_SUM(sum, n, g[i]);
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            dx[i] = g[i] - pst_real_exp(y[i]) * sum;
    }
}

/* --- down columns --------------------------------------------------------- */

#define COLS PST_SOFTMAX_COLS
#define ROWS PST_COLUMN_ROWS
_Static_assert(COLS <= PST_COLUMNS, "too many columns for exprow.h");

static void columns(int64_t n, int64_t cols, int64_t stride, bool log,
                    const void *px, void *py)
{
    const pst_real *x = px;
    pst_real *y = py;

    pst_real max[COLS], sum[COLS];

    pst_columns_max(n, cols, stride, x, max);
    pst_columns_exp(n, cols, stride, x, max, log ? NULL : y, sum);
    for (int64_t j = 0; j < cols; j++)
        sum[j] = log ? pst_real_log(sum[j]) : (pst_real)1 / sum[j];
    for (int64_t r = 0; r < n; r++, x += stride, y += stride) {
        if (log) {
            PST_INDEPENDENT
            for (int64_t j = 0; j < cols; j++)
                y[j] = x[j] - max[j] - sum[j];
        } else {
            PST_INDEPENDENT
            for (int64_t j = 0; j < cols; j++)
                y[j] *= sum[j];
        }
    }
}

static void columns_grad(int64_t n, int64_t cols, int64_t stride, bool log,
                         const void *pg, const void *py, void *pdx)
{
    const pst_real *g = pg, *y = py;
    pst_real *dx = pdx;

    pst_real sum[COLS] = {0};

    for (int64_t first = 0; first < n; first += ROWS) {
        const int64_t last = first + ROWS < n ? first + ROWS : n;
        pst_real part[COLS] = {0};

        for (int64_t r = first; r < last; r++)
            for (int64_t j = 0; j < cols; j++)
                part[j] += log ? g[r * stride + j]
                               : g[r * stride + j] * y[r * stride + j];
        for (int64_t j = 0; j < cols; j++)
            sum[j] += part[j];
    }
    for (int64_t r = 0; r < n; r++, g += stride, y += stride, dx += stride) {
        if (log) {
            PST_INDEPENDENT
            for (int64_t j = 0; j < cols; j++)
                dx[j] = g[j] - pst_real_exp(y[j]) * sum[j];
        } else {
            PST_INDEPENDENT
            for (int64_t j = 0; j < cols; j++)
                dx[j] = y[j] * (g[j] - sum[j]);
        }
    }
}

const struct pst_softmax_loops PST_SIMD_REAL(pst_softmax_loops) = {
    .softmax = softmax,
    .log_softmax = log_softmax,
    .softmax_grad = softmax_grad,
    .log_softmax_grad = log_softmax_grad,
    .columns = columns,
    .columns_grad = columns_grad,
};
