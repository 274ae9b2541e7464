// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"
#include "stages/ops/matmul/packed.h"

#include "stages/ops/cpu/simd/layers/exprow.h"

/* Pads a row of n elements with `value` to a multiple of PST_LANES elements;
 * returns that length. Rows under a causal mask have any length; padded with
 * -inf, they need no scalar loop. */
static int64_t fill_lanes(int64_t n, float *x, float value)
{
    const int64_t whole = (n + PST_LANES - 1) / PST_LANES * PST_LANES;

    for (int64_t i = n; i < whole; i++)
        x[i] = value;
    return whole;
}

/* Sets -inf to 0, in a row whose mask allows no key. A NaN stays. */
static void clear_hidden(int64_t m, float *x)
{
    for (int64_t i = 0; i < m; i++)
        x[i] = x[i] == -INFINITY ? 0.0f : x[i];
}

static void softmax(int64_t n, float *x, float *sums)
{
    const int64_t m = fill_lanes(n, x, -INFINITY);
    const float max = pst_row_max(m, x);
    float sum = 0.0f, scale;

    if (max == -INFINITY) {
        clear_hidden(m, x);
    } else {
        sum = pst_row_exp(m, x, max, x);
        scale = 1.0f / sum;
        for (int64_t i = 0; i < m; i++)
            x[i] *= scale;
    }
    if (sums == NULL)
        return;
    sums[0] = max;
    sums[1] = sum;
}

static void softmax_of(int64_t n, float *x, const float *sums)
{
    const int64_t m = fill_lanes(n, x, -INFINITY);
    const float max = sums[0], scale = 1.0f / sums[1];

    if (max == -INFINITY) {
        clear_hidden(m, x);
        return;
    }
    for (int64_t i = 0; i < m; i++)
        x[i] = pst_real_exp_neg(x[i] - max) * scale;
}

static void backward(int64_t n, const float *restrict p, float *restrict dp)
{
    const int64_t m = fill_lanes(n, dp, 0.0f);
    float sum = 0.0f;

    PST_LANES_SUM(sum, m, p[i] * dp[i]);
    for (int64_t i = 0; i < m; i++)
        dp[i] = p[i] * (dp[i] - sum);
}

static void multiply_tile(const struct pst_tile *tile)
{
    pst_tile_product(tile);
}

static void transpose(int64_t rows, int64_t cols, const float *from,
                      int64_t ld_from, float *to, int64_t ld_to)
{
    pst_tile_transpose(rows, cols, from, ld_from, to, ld_to);
    for (int64_t c = 0; c < cols; c++)
        fill_lanes(rows, to + c * ld_to, 0.0f);
}

const struct pst_sdpa_loops PST_SIMD(pst_sdpa_loops) = {
    .softmax = softmax,
    .softmax_of = softmax_of,
    .backward = backward,
    .product = multiply_tile,
    .dots = PST_SIMD(pst_simd_dots),
    .transpose = transpose,
};
