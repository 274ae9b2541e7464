// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include "stages/ops/simd/lanes.h"
#include "stages/ops/simd/tile.h"

#include <math.h>

static void row_stats(const struct pst_norm_rows *p, const pst_real *restrict x,
                      pst_real *ret_mean, pst_real *ret_rstd)
{
    pst_real mean = 0, var = 0;

    if (p->centre) {
        PST_LANES_SUM(mean, p->n, x[i]);
        mean /= (pst_real)p->n;
        PST_LANES_SUM(var, p->n, (x[i] - mean) * (x[i] - mean));
    } else {
        PST_LANES_SUM(var, p->n, x[i] * x[i]);
    }
    *ret_mean = mean;
    *ret_rstd =
        (pst_real)1 / pst_real_sqrt(var / (pst_real)p->n + (pst_real)p->eps);
}

static void forward(const struct pst_norm_rows *p, int64_t rows, const void *px,
                    void *py, void *pstats)
{
    const pst_real *restrict w = p->w, *restrict b = p->b, *x = px;
    pst_real *y = py, *stats = pstats;
    const int64_t n = p->n;

    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        pst_real mean, rstd;

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
static void row_dots(const struct pst_norm_rows *p, const pst_real *restrict g,
                     const pst_real *restrict x, pst_real mean,
                     pst_real *ret_sum, pst_real *ret_dot)
{
    pst_real sum[PST_LANES] = {0}, dot[PST_LANES] = {0};
    const pst_real *restrict w = p->w;
    int64_t i = 0;

    for (; i + PST_LANES <= p->n; i += PST_LANES) {
        pst_real gw[PST_LANES];

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
        const pst_real gw = w != NULL ? g[i] * w[i] : g[i];

        sum[j] += gw;
        dot[j] += gw * (x[i] - mean);
    }
    *ret_sum = p->centre ? pst_lanes_sum(sum) : 0;
    *ret_dot = pst_lanes_sum(dot);
}

static void input(const struct pst_norm_rows *p, int64_t rows, const void *pg,
                  const void *px, void *pdx)
{
    const pst_real *restrict w = p->w, *g = pg, *x = px;
    pst_real *dx = pdx;
    const int64_t n = p->n;

    for (int64_t r = 0; r < rows; r++, g += n, x += n, dx += n) {
        pst_real mean, rstd, sum = 0, dot = 0;

        row_stats(p, x, &mean, &rstd);
        row_dots(p, g, x, mean, &sum, &dot);
        sum /= (pst_real)n;
        dot *= rstd * rstd / (pst_real)n;
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

static void stats(const struct pst_norm_rows *p, int64_t rows, const void *px,
                  void *pret)
{
    const pst_real *x = px;
    pst_real *ret = pret;

    for (int64_t r = 0; r < rows; r++)
        row_stats(p, x + r * p->n, &ret[2 * r], &ret[2 * r + 1]);
}

/* As in column_sum.c: partial sums of 32 rows are added up. Columns are taken
 * in strips whose sums stay in registers. */
#define ROWS  32
#define VECS  4
#define WIDTH (PST_TILE_VEC * 4 / (int)sizeof(pst_real))
#define STRIP (VECS * WIDTH)

typedef pst_real vec PST_VECTOR(PST_TILE_VEC * 4);

static void strip(int64_t rows, int64_t n, const pst_real *g, const pst_real *x,
                  const pst_real *moments, pst_real *dw, pst_real *db)
{
    vec w[VECS] = {0}, b[VECS] = {0};

    for (int64_t r = 0; r < rows; r++, g += n, x += n) {
        const pst_real mean = moments[2 * r], rstd = moments[2 * r + 1];

#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            const vec gv = *(const vec *)(g + v * WIDTH);
            const vec xv = *(const vec *)(x + v * WIDTH);

            w[v] += gv * ((xv - mean) * rstd);
            b[v] += gv;
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) {
        *(vec *)(dw + v * WIDTH) += w[v];
        *(vec *)(db + v * WIDTH) += b[v];
    }
}

static void affine(int64_t rows, int64_t n, int64_t begin, int64_t end,
                   const void *pg, const void *px, const void *pmoments,
                   void *pdw, void *pdb)
{
    const pst_real *g = pg, *x = px, *moments = pmoments;
    pst_real *dw = pdw, *db = pdb;

    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t m = first + ROWS < rows ? ROWS : rows - first;
        const pst_real *gr = g + first * n, *xr = x + first * n;
        const pst_real *st = moments + 2 * first;
        int64_t c = begin;

        for (; c + STRIP <= end; c += STRIP)
            strip(m, n, gr + c, xr + c, st, dw + c, db + c);
        for (; c < end; c++) {
            pst_real w = 0, b = 0;

            for (int64_t r = 0; r < m; r++) {
                const pst_real gi = gr[r * n + c];

                w += gi * ((xr[r * n + c] - st[2 * r]) * st[2 * r + 1]);
                b += gi;
            }
            dw[c] += w;
            db[c] += b;
        }
    }
}

static void put(int64_t n, const void *from, void *to, bool accumulate)
{
    const pst_real *x = from;
    pst_real *y = to;

    for (int64_t i = 0; i < n; i++)
        y[i] = accumulate ? y[i] + x[i] : x[i];
}

const struct pst_norm_loops PST_SIMD_REAL(pst_norm_loops) = {
    .forward = forward,
    .input = input,
    .stats = stats,
    .affine = affine,
    .put = put,
};
