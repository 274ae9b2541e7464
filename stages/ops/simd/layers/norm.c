// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include "stages/ops/simd/lanes.h"
#include "stages/ops/simd/tile.h"

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
            PST_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * rstd * w[i] + b[i];
        } else if (w != NULL) {
            PST_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * rstd * w[i];
        } else {
            PST_INDEPENDENT
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

/* Sums of g w and of g w (x - mean), w = 1 if there is none. */
static void row_dots(const struct pst_norm_rows *p, const float *restrict g,
                     const float *restrict x, float mean, float *ret_sum,
                     float *ret_dot)
{
    float sum[PST_LANES] = {0}, dot[PST_LANES] = {0};
    const float *restrict w = p->w;
    int64_t i = 0;

    for (; i + PST_LANES <= p->n; i += PST_LANES) {
        float gw[PST_LANES];

        if (w != NULL)
            for (int j = 0; j < PST_LANES; j++)
                gw[j] = g[i + j] * w[i + j];
        else
            for (int j = 0; j < PST_LANES; j++)
                gw[j] = g[i + j];
        for (int j = 0; j < PST_LANES; j++) {
            sum[j] += gw[j];
            dot[j] += gw[j] * (x[i + j] - mean);
        }
    }
    for (int j = 0; i < p->n; i++, j++) {
        const float gw = w != NULL ? g[i] * w[i] : g[i];

        sum[j] += gw;
        dot[j] += gw * (x[i] - mean);
    }
    *ret_sum = p->centre ? pst_lanes_sum(sum) : 0.0f;
    *ret_dot = pst_lanes_sum(dot);
}

static void input(const struct pst_norm_rows *p, int64_t rows, const float *g,
                  const float *x, float *dx)
{
    const float *restrict w = p->w;
    const int64_t n = p->n;

    for (int64_t r = 0; r < rows; r++, g += n, x += n, dx += n) {
        float mean, rstd, sum = 0.0f, dot = 0.0f;

        row_stats(p, x, &mean, &rstd);
        row_dots(p, g, x, mean, &sum, &dot);
        sum /= (float)n;
        dot *= rstd * rstd / (float)n;
        if (w != NULL) {
            PST_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                dx[i] = rstd * (g[i] * w[i] - sum - (x[i] - mean) * dot);
        } else {
            PST_INDEPENDENT
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

/* As in column_sum.c: partial sums of 32 rows are added up. Columns are taken
 * in strips whose sums stay in registers. */
#define ROWS  32
#define VECS  4
#define STRIP (VECS * PST_TILE_VEC)

static void strip(int64_t rows, int64_t n, const float *g, const float *x,
                  const float *moments, float *dw, float *db)
{
    pst_vec w[VECS] = {0}, b[VECS] = {0};

    for (int64_t r = 0; r < rows; r++, g += n, x += n) {
        const float mean = moments[2 * r], rstd = moments[2 * r + 1];

#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            const pst_vec gv = *(const pst_vec *)(g + v * PST_TILE_VEC);
            const pst_vec xv = *(const pst_vec *)(x + v * PST_TILE_VEC);

            w[v] += gv * ((xv - mean) * rstd);
            b[v] += gv;
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) {
        *(pst_vec *)(dw + v * PST_TILE_VEC) += w[v];
        *(pst_vec *)(db + v * PST_TILE_VEC) += b[v];
    }
}

static void affine(int64_t rows, int64_t n, int64_t begin, int64_t end,
                   const float *g, const float *x, const float *moments,
                   float *dw, float *db)
{
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t m = first + ROWS < rows ? ROWS : rows - first;
        const float *gr = g + first * n, *xr = x + first * n;
        const float *st = moments + 2 * first;
        int64_t c = begin;

        for (; c + STRIP <= end; c += STRIP)
            strip(m, n, gr + c, xr + c, st, dw + c, db + c);
        for (; c < end; c++) {
            float w = 0.0f, b = 0.0f;

            for (int64_t r = 0; r < m; r++) {
                const float gi = gr[r * n + c];

                w += gi * ((xr[r * n + c] - st[2 * r]) * st[2 * r + 1]);
                b += gi;
            }
            dw[c] += w;
            db[c] += b;
        }
    }
}

const struct pst_norm_loops PST_SIMD(pst_norm_loops) = {
    .forward = forward,
    .input = input,
    .stats = stats,
    .affine = affine,
};
