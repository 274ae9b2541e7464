// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include "stages/ops/simd/lanes.h"

#include <math.h>

static void row_stats(const struct pst_norm_rows *p, const float *restrict x,
                      float *ret_mean, float *ret_rstd)
{
    float mean = 0.0f, var = 0.0f;

    if (p->centre) {
        PST_LANES_SUM(mean, p->n, x[i]);
        mean /= (float)p->n;
        PST_LANES_SUM(var, p->n, (x[i] - mean) * (x[i] - mean));
    } else {
        PST_LANES_SUM(var, p->n, x[i] * x[i]);
    }
    *ret_mean = mean;
    *ret_rstd = 1.0f / sqrtf(var / (float)p->n + p->eps);
}

static void forward(const struct pst_norm_rows *p, int64_t rows, const float *x,
                    float *y, float *stats)
{
    const float *restrict w = p->w, *restrict b = p->b;
    const int64_t n = p->n;

    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        float mean, rstd;

        row_stats(p, x, &mean, &rstd);
        if (w != NULL && b != NULL) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * rstd * w[i] + b[i];
        } else if (w != NULL) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * rstd * w[i];
        } else {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * rstd;
            for (int64_t i = 0; b != NULL && i < n; i++)
                y[i] += b[i];
        }
        if (stats != NULL) {
            stats[2 * r] = mean;
            stats[2 * r + 1] = rstd;
        }
    }
}

static void input(const struct pst_norm_rows *p, int64_t rows, const float *g,
                  const float *x, float *dx)
{
    const float *restrict w = p->w;
    const int64_t n = p->n;

    for (int64_t r = 0; r < rows; r++, g += n, x += n, dx += n) {
        float mean, rstd, sum = 0.0f, dot = 0.0f;

        row_stats(p, x, &mean, &rstd);
        if (w != NULL) {
            PST_LANES_SUM(dot, n, g[i] * w[i] * (x[i] - mean));
            if (p->centre)
                PST_LANES_SUM(sum, n, g[i] * w[i]);
        } else {
            PST_LANES_SUM(dot, n, g[i] * (x[i] - mean));
            if (p->centre)
                PST_LANES_SUM(sum, n, g[i]);
        }
        sum /= (float)n;
        dot *= rstd * rstd / (float)n;
        if (w != NULL) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                dx[i] = rstd * (g[i] * w[i] - sum - (x[i] - mean) * dot);
        } else {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                dx[i] = rstd * (g[i] - sum - (x[i] - mean) * dot);
        }
    }
}

static void stats(const struct pst_norm_rows *p, int64_t rows, const float *x,
                  float *ret)
{
    for (int64_t r = 0; r < rows; r++)
        row_stats(p, x + r * p->n, &ret[2 * r], &ret[2 * r + 1]);
}

/* As in column_sum.c: partial sums of 32 rows are added up. */
#define COLS 256
#define ROWS 32

static void weight(int64_t rows, int64_t n, int64_t begin, int64_t end,
                   const float *g, const float *x, const float *stats_,
                   float *dw, bool accumulate)
{
    for (int64_t c = begin; c < end; c += COLS) {
        const int64_t m = end - c < COLS ? end - c : COLS;
        float total[COLS] = {0};

        for (int64_t first = 0; first < rows; first += ROWS) {
            const int64_t last = first + ROWS < rows ? first + ROWS : rows;
            float sum[COLS] = {0};

            for (int64_t r = first; r < last; r++) {
                const float *restrict gr = g + r * n + c;
                const float *restrict xr = x + r * n + c;
                const float mean = stats_[2 * r], rstd = stats_[2 * r + 1];

                for (int64_t j = 0; j < m; j++)
                    sum[j] += gr[j] * ((xr[j] - mean) * rstd);
            }
            for (int64_t j = 0; j < m; j++)
                total[j] += sum[j];
        }
        for (int64_t j = 0; j < m; j++)
            dw[c + j] = accumulate ? dw[c + j] + total[j] : total[j];
    }
}

const struct pst_norm_loops PST_SIMD(pst_norm_loops) = {
    .forward = forward,
    .input = input,
    .stats = stats,
    .weight = weight,
};
