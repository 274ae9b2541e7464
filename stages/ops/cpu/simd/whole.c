// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/whole.h"

#include <string.h>

#define LANES 64  /* bytes that are counted in parallel */
#define MOST  255 /* largest count that a byte can hold */

static int64_t sum_bool(int64_t n, const uint8_t *x)
{
    int64_t total = 0, i = 0;

    while (i + LANES <= n) {
        const int64_t left = (n - i) / LANES;
        const int64_t steps = left < MOST ? left : MOST;
        uint8_t lane[LANES] = {0};
        uint32_t part = 0;

        for (int64_t k = 0; k < steps; k++, i += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] = (uint8_t)(lane[j] + (x[i + j] != 0));
        for (int j = 0; j < LANES; j++)
            part += lane[j];
        total += part;
    }
    for (; i < n; i++)
        total += x[i] != 0;
    return total;
}

static int64_t sum_i64(int64_t n, const int64_t *x)
{
    uint64_t total = 0;

    for (int64_t i = 0; i < n; i++)
        total += (uint64_t)x[i];
    return (int64_t)total;
}

static void columns_bool(int64_t rows, int64_t cols, int64_t stride,
                         const uint8_t *x, int64_t *restrict y)
{
    memset(y, 0, (size_t)cols * sizeof(*y));
    while (rows > 0) {
        const int64_t some = rows < MOST ? rows : MOST;

        for (int64_t j = 0; j < cols; j += LANES) {
            const int64_t width = cols - j < LANES ? cols - j : LANES;
            uint8_t lane[LANES] = {0};

            for (int64_t r = 0; r < some; r++) {
                const uint8_t *row = x + r * stride + j;

                if (width == LANES)
                    for (int k = 0; k < LANES; k++)
                        lane[k] = (uint8_t)(lane[k] + (row[k] != 0));
                else
                    for (int64_t k = 0; k < width; k++)
                        lane[k] = (uint8_t)(lane[k] + (row[k] != 0));
            }
            for (int64_t k = 0; k < width; k++)
                y[j + k] += lane[k];
        }
        x += some * stride;
        rows -= some;
    }
}

static void columns_i64(int64_t rows, int64_t cols, int64_t stride,
                        const int64_t *x, int64_t *restrict y)
{
    memset(y, 0, (size_t)cols * sizeof(*y));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            y[j] = (int64_t)((uint64_t)y[j] + (uint64_t)x[r * stride + j]);
}

const struct pst_simd_whole PST_SIMD(pst_simd_whole) = {
    .sum_bool = sum_bool,
    .sum_i64 = sum_i64,
    .columns_bool = columns_bool,
    .columns_i64 = columns_i64,
};
