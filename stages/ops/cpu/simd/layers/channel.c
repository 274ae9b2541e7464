// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/channel.h"

#include "stages/ops/cpu/simd/lanes.h"

/* Elements per partial sum; partial sums are added in double. */
#define BLOCK 4096

static double sum(int64_t n, const float *x)
{
    double ret = 0.0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *restrict p = x + at;
        float part = 0.0f;

        PST_LANES_SUM(part, m, p[i]);
        ret += (double)part;
    }
    return ret;
}

static double sum_squares(int64_t n, const float *x, float mean)
{
    double ret = 0.0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *restrict p = x + at;
        float part = 0.0f;

        PST_LANES_SUM(part, m, (p[i] - mean) * (p[i] - mean));
        ret += (double)part;
    }
    return ret;
}

static void normalise(int64_t n, const float *x, float mean, float scale,
                      float shift, float *y)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale + shift;
}

static void gradient_sums(int64_t n, const float *g, const float *x, float mean,
                          double *a, double *b)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *restrict pg = g + at, *restrict px = x + at;
        float of_g = 0.0f, of_gx = 0.0f;

        PST_LANES_SUM(of_g, m, pg[i]);
        PST_LANES_SUM(of_gx, m, pg[i] * (px[i] - mean));
        *a += (double)of_g;
        *b += (double)of_gx;
    }
}

static void input_gradient(int64_t n, const float *g, const float *x,
                           float mean, float scale, float by, float shift,
                           float *dx)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = g[i] * scale + ((x[i] - mean) * by + shift);
}

static void column_sums(int64_t n, const float *restrict x,
                        double *restrict sums)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] += (double)x[i];
}

static void column_squares(int64_t n, const float *restrict x,
                           const float *restrict mean, double *restrict sums)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = x[i] - mean[i];

        sums[i] += (double)(d * d);
    }
}

static void column_apply(int64_t n, const float *x, const float *mean,
                         const float *scale, const float *shift, float *y)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
}

static void column_products(int64_t n, const float *restrict g,
                            const float *restrict x, const float *restrict mean,
                            double *restrict a, double *restrict b)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] += (double)g[i];
        b[i] += (double)(g[i] * (x[i] - mean[i]));
    }
}

static void column_input(int64_t n, const float *g, const float *x,
                         const float *mean, const float *scale, const float *by,
                         const float *shift, float *dx)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = g[i] * scale[i] + ((x[i] - mean[i]) * by[i] + shift[i]);
}

const struct pst_channel_loops PST_SIMD(pst_channel_loops) = {
    .sum = sum,
    .squares = sum_squares,
    .apply = normalise,
    .sums = gradient_sums,
    .input = input_gradient,
    .column_sums = column_sums,
    .column_squares = column_squares,
    .column_apply = column_apply,
    .column_products = column_products,
    .column_input = column_input,
};
