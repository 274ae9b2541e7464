// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_LAYERS_EXPROW_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_LAYERS_EXPROW_H
/* Helpers of all softmax variants for a row, or for columns. */
#include "stages/ops/cpu/simd/lanes.h"

/* Returns the maximum, which ignores NaN: the sum of exponentials propagates
 * it. */
static inline pst_real pst_row_max(int64_t n, const pst_real *x)
{
    pst_real max = -INFINITY;

    PST_LANES_MAX(max, n, x[i]);
    return max;
}

/* Returns the sum of e^(x - max). */
static inline pst_real pst_row_sum_exp(int64_t n, const pst_real *x,
                                       pst_real max)
{
    pst_real sum = 0;

    PST_LANES_SUM(sum, n, pst_real_exp_neg(x[i] - max));
    return sum;
}

/* Writes e^(x - max) to y, which may be x; returns the sum. */
static inline pst_real pst_row_exp(int64_t n, const pst_real *x, pst_real max,
                                   pst_real *y)
{
    pst_real lane[PST_LANES] = {0};
    int64_t i = 0;

    for (; i + PST_LANES <= n; i += PST_LANES) {
        pst_real e[PST_LANES];

        for (int j = 0; j < PST_LANES; j++)
            e[j] = pst_real_exp_neg(x[i + j] - max);
        for (int j = 0; j < PST_LANES; j++) {
            y[i + j] = e[j];
            lane[j] += e[j];
        }
    }
    for (int j = 0; i < n; i++, j++) {
        y[i] = pst_real_exp_neg(x[i] - max);
        lane[j] += y[i];
    }
    return pst_lanes_sum(lane);
}

/* --- down columns: n rows, stride apart, of cols numbers ------------------ */

#define PST_COLUMNS     64 /* maximum columns at a time */
#define PST_COLUMN_ROWS 32 /* rows per partial sum, as in simd/column_sum.c */

static inline void pst_columns_max(int64_t n, int64_t cols, int64_t stride,
                                   const pst_real *x, pst_real *max)
{
    for (int64_t j = 0; j < cols; j++)
        max[j] = -INFINITY;
    for (int64_t r = 0; r < n; r++, x += stride)
        for (int64_t j = 0; j < cols; j++)
            max[j] = x[j] > max[j] ? x[j] : max[j];
}

/* Sets sum[j] to the sum of e^(x - max[j]) down column j; stores the terms in y
 * unless that is NULL. y may be x. */
static inline void pst_columns_exp(int64_t n, int64_t cols, int64_t stride,
                                   const pst_real *x, const pst_real *max,
                                   pst_real *y, pst_real *sum)
{
    for (int64_t j = 0; j < cols; j++)
        sum[j] = 0;
    for (int64_t first = 0; first < n; first += PST_COLUMN_ROWS) {
        const int64_t last =
            first + PST_COLUMN_ROWS < n ? first + PST_COLUMN_ROWS : n;
        pst_real part[PST_COLUMNS] = {0};

        for (int64_t r = first; r < last; r++) {
            const pst_real *row = x + r * stride;
            pst_real e[PST_COLUMNS];

            for (int64_t j = 0; j < cols; j++) {
                e[j] = pst_real_exp_neg(row[j] - max[j]);
                part[j] += e[j];
            }
            for (int64_t j = 0; y != NULL && j < cols; j++)
                y[r * stride + j] = e[j];
        }
        for (int64_t j = 0; j < cols; j++)
            sum[j] += part[j];
    }
}

#endif
