// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include "stages/ops/cpu/simd/lanes.h"
#include "stages/ops/cpu/simd/tile.h"

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

/* --- short rows ----------------------------------------------------------- */

/* Rows shorter than the lanes are computed BLOCK at a time: a line has element
 * i of all of them, with zeros where the last block lacks rows, so that a row
 * has the same bits wherever it is. Sums have the order of row_stats and
 * row_dots, whose trees add zeros in the other lanes. */
#define BLOCK 16

typedef pst_real line[BLOCK];

static int block_rows(int64_t left)
{
    return (int)(left < BLOCK ? left : BLOCK);
}

static void transpose_rows(int m, int64_t n, const pst_real *restrict x,
                           line *restrict to)
{
    for (int k = 0; k < m; k++)
        for (int64_t i = 0; i < n; i++)
            to[i][k] = x[k * n + i];
    for (int64_t i = 0; m < BLOCK && i < n; i++)
        for (int k = m; k < BLOCK; k++)
            to[i][k] = 0;
}

static void transpose_back(int m, int64_t n, const line *restrict from,
                           pst_real *restrict y)
{
    for (int k = 0; k < m; k++)
        for (int64_t i = 0; i < n; i++)
            y[k * n + i] = from[i][k];
}

/* Sums the n lines of t in the order of pst_lanes_sum; overwrites t. */
static void sum_lines(int64_t n, line *restrict t, pst_real *restrict ret)
{
    for (int w = PST_LANES / 2; w > 0; w /= 2)
        for (int64_t j = 0; j < w && j + w < n; j++)
            for (int k = 0; k < BLOCK; k++)
                t[j][k] += t[j + w][k];
    for (int k = 0; k < BLOCK; k++)
        ret[k] = 0 + t[0][k];
}

static void block_stats(const struct pst_norm_rows *p, const line *restrict x,
                        pst_real *restrict mean, pst_real *restrict rstd)
{
    line t[PST_LANES];
    pst_real var[BLOCK];

    for (int k = 0; k < BLOCK; k++)
        mean[k] = 0;
    if (p->centre) {
        for (int64_t i = 0; i < p->n; i++)
            for (int k = 0; k < BLOCK; k++)
                t[i][k] = x[i][k];
        sum_lines(p->n, t, mean);
        for (int k = 0; k < BLOCK; k++)
            mean[k] /= (pst_real)p->n;
    }
    for (int64_t i = 0; i < p->n; i++)
        for (int k = 0; k < BLOCK; k++)
            t[i][k] = (x[i][k] - mean[k]) * (x[i][k] - mean[k]);
    sum_lines(p->n, t, var);
    for (int k = 0; k < BLOCK; k++)
        rstd[k] = (pst_real)1 /
                  pst_real_sqrt(var[k] / (pst_real)p->n + (pst_real)p->eps);
}

static void put_stats(int m, const pst_real *restrict mean,
                      const pst_real *restrict rstd, pst_real *restrict ret)
{
    for (int k = 0; k < m; k++) {
        ret[2 * k] = mean[k];
        ret[2 * k + 1] = rstd[k];
    }
}

static void stats_block(const struct pst_norm_rows *p, int m,
                        const pst_real *px, pst_real *ret)
{
    line x[PST_LANES];
    pst_real mean[BLOCK], rstd[BLOCK];

    transpose_rows(m, p->n, px, x);
    block_stats(p, x, mean, rstd);
    put_stats(m, mean, rstd, ret);
}

static void forward_block(const struct pst_norm_rows *p, int m,
                          const pst_real *px, pst_real *py, pst_real *stats)
{
    const pst_real *restrict w = p->w, *restrict b = p->b;
    line x[PST_LANES];
    pst_real mean[BLOCK], rstd[BLOCK];

    transpose_rows(m, p->n, px, x);
    block_stats(p, x, mean, rstd);
    for (int64_t i = 0; i < p->n; i++) {
        for (int k = 0; k < BLOCK; k++)
            x[i][k] = (x[i][k] - mean[k]) * rstd[k];
        for (int k = 0; w != NULL && k < BLOCK; k++)
            x[i][k] *= w[i];
        for (int k = 0; b != NULL && k < BLOCK; k++)
            x[i][k] += b[i];
    }
    transpose_back(m, p->n, x, py);
    if (stats != NULL)
        put_stats(m, mean, rstd, stats);
}

static void input_block(const struct pst_norm_rows *p, int m,
                        const pst_real *pg, const pst_real *px, pst_real *pdx)
{
    const pst_real *restrict w = p->w;
    const pst_real n = (pst_real)p->n;
    line x[PST_LANES], g[PST_LANES], t[PST_LANES];
    pst_real mean[BLOCK], rstd[BLOCK], sum[BLOCK] = {0}, dot[BLOCK];

    transpose_rows(m, p->n, px, x);
    transpose_rows(m, p->n, pg, g);
    block_stats(p, x, mean, rstd);
    for (int64_t i = 0; i < p->n; i++) {
        for (int k = 0; w != NULL && k < BLOCK; k++)
            g[i][k] *= w[i];
        for (int k = 0; k < BLOCK; k++)
            x[i][k] -= mean[k];
        for (int k = 0; k < BLOCK; k++)
            t[i][k] = g[i][k] * x[i][k];
    }
    sum_lines(p->n, t, dot);
    if (p->centre) {
        for (int64_t i = 0; i < p->n; i++)
            for (int k = 0; k < BLOCK; k++)
                t[i][k] = g[i][k];
        sum_lines(p->n, t, sum);
    }
    for (int k = 0; k < BLOCK; k++) {
        sum[k] /= n;
        dot[k] *= rstd[k] * rstd[k] / n;
    }
    for (int64_t i = 0; i < p->n; i++)
        for (int k = 0; k < BLOCK; k++)
            x[i][k] = rstd[k] * (g[i][k] - sum[k] - x[i][k] * dot[k]);
    transpose_back(m, p->n, x, pdx);
}

/* --- rows ----------------------------------------------------------------- */

static void forward(const struct pst_norm_rows *p, int64_t rows, const void *px,
                    void *py, void *pstats)
{
    const pst_real *restrict w = p->w, *restrict b = p->b, *x = px;
    pst_real *y = py, *stats = pstats;
    const int64_t n = p->n;

    for (int64_t r = 0; n < PST_LANES && r < rows; r += BLOCK)
        forward_block(p, block_rows(rows - r), x + r * n, y + r * n,
                      stats == NULL ? NULL : stats + 2 * r);
    for (int64_t r = 0; n >= PST_LANES && r < rows; r++, x += n, y += n) {
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

/* Computes the sums of g w and of g w (x - mean); w = 1 if there is none. */
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

static void input_gradient(const struct pst_norm_rows *p, int64_t rows,
                           const void *pg, const void *px, void *pdx)
{
    const pst_real *restrict w = p->w, *g = pg, *x = px;
    pst_real *dx = pdx;
    const int64_t n = p->n;

    for (int64_t r = 0; n < PST_LANES && r < rows; r += BLOCK)
        input_block(p, block_rows(rows - r), g + r * n, x + r * n, dx + r * n);
    for (int64_t r = 0; n >= PST_LANES && r < rows;
         r++, g += n, x += n, dx += n) {
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

static void compute_stats(const struct pst_norm_rows *p, int64_t rows,
                          const void *px, void *pret)
{
    const pst_real *x = px;
    pst_real *ret = pret;

    for (int64_t r = 0; p->n < PST_LANES && r < rows; r += BLOCK)
        stats_block(p, block_rows(rows - r), x + r * p->n, ret + 2 * r);
    for (int64_t r = 0; p->n >= PST_LANES && r < rows; r++)
        row_stats(p, x + r * p->n, &ret[2 * r], &ret[2 * r + 1]);
}

/* Rows per partial sum, as in column_sum.c; columns are processed in strips
 * whose sums stay in registers. */
#define ROWS  32
#define VECS  4
#define WIDTH (PST_TILE_VEC * 4 / (int)sizeof(pst_real))
#define STRIP (VECS * WIDTH)

typedef pst_real vec PST_VECTOR(PST_TILE_VEC * 4);

static void add_strip(int64_t rows, int64_t n, const pst_real *g,
                      const pst_real *x, const pst_real *moments, pst_real *dw,
                      pst_real *db)
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

/* Adds the gradients of weight and bias for the last columns, which are fewer
 * than STRIP. */
static void add_rest(int64_t rows, int64_t n, int64_t columns,
                     const pst_real *g, const pst_real *x,
                     const pst_real *moments, pst_real *dw, pst_real *db)
{
    pst_real w[STRIP] = {0}, b[STRIP] = {0};

    for (int64_t r = 0; r < rows; r++, g += n, x += n) {
        const pst_real mean = moments[2 * r], rstd = moments[2 * r + 1];

        for (int64_t c = 0; c < columns; c++) {
            w[c] += g[c] * ((x[c] - mean) * rstd);
            b[c] += g[c];
        }
    }
    for (int64_t c = 0; c < columns; c++) {
        dw[c] += w[c];
        db[c] += b[c];
    }
}

static void affine_gradient(int64_t rows, int64_t n, int64_t begin, int64_t end,
                            const void *pg, const void *px,
                            const void *pmoments, void *pdw, void *pdb)
{
    const pst_real *g = pg, *x = px, *moments = pmoments;
    pst_real *dw = pdw, *db = pdb;

    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t m = first + ROWS < rows ? ROWS : rows - first;
        const pst_real *gr = g + first * n, *xr = x + first * n;
        const pst_real *st = moments + 2 * first;
        int64_t c = begin;

        for (; c + STRIP <= end; c += STRIP)
            add_strip(m, n, gr + c, xr + c, st, dw + c, db + c);
        if (c < end)
            add_rest(m, n, end - c, gr + c, xr + c, st, dw + c, db + c);
    }
}

static void store_or_add(int64_t n, const void *from, void *to, bool accumulate)
{
    const pst_real *x = from;
    pst_real *y = to;

    for (int64_t i = 0; i < n; i++)
        y[i] = accumulate ? y[i] + x[i] : x[i];
}

const struct pst_norm_loops PST_SIMD_REAL(pst_norm_loops) = {
    .forward = forward,
    .input = input_gradient,
    .stats = compute_stats,
    .affine = affine_gradient,
    .put = store_or_add,
};
