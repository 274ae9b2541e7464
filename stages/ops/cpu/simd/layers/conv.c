// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/direct.h"

#include "stages/ops/cpu/simd/tile.h"

/* Vectors of a tile of one row (ONE) and of PST_CONV_ROWS rows (ALL), and taps
 * of a tile of dot products (FAN): the accumulators fit the registers. */
#define VEC PST_TILE_VEC
#define ONE 8
#if defined(__AVX512F__)
#define ALL 4
#define FAN 6
#else
#define ALL 2
#define FAN 2
#endif

/* --- sums --------------------------------------------------------------- */

static PST_ALWAYS_INLINE void sum_tile(int rows, int nv,
                                       const struct pst_conv_tile *t, int64_t i)
{
    pst_vec acc[PST_CONV_ROWS][ONE] = {0};
    const float *w = t->w;

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < nv; v++)
            acc[r][v] += t->bias[r];
    for (int64_t k = 0; k < t->taps; k++, w += rows) {
        const float *x = t->x + t->offset[k] + i;

#pragma GCC unroll 8
        for (int v = 0; v < nv; v++) {
            const pst_vec at = *(const pst_vec *)(x + v * VEC);

#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                acc[r][v] += w[r] * at;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < nv; v++)
            *(pst_vec *)(t->y + r * t->ldy + i + v * VEC) = acc[r][v];
}

static void sums_of_one(const struct pst_conv_tile *t)
{
    int64_t i = 0;

    for (; i + ONE * VEC <= t->n; i += ONE * VEC)
        sum_tile(1, ONE, t, i);
    for (; i + 2 * VEC < t->n; i += 4 * VEC)
        sum_tile(1, 4, t, i);
    for (; i < t->n; i += 2 * VEC)
        sum_tile(1, 2, t, i);
}

static void sums_of_all(const struct pst_conv_tile *t)
{
    int64_t i = 0;

    for (; i + (ALL - 1) * VEC < t->n; i += ALL * VEC)
        sum_tile(PST_CONV_ROWS, ALL, t, i);
    for (; i + VEC < t->n; i += 2 * VEC)
        sum_tile(PST_CONV_ROWS, 2, t, i);
    for (; i < t->n; i += VEC)
        sum_tile(PST_CONV_ROWS, 1, t, i);
}

static void all_sums(const struct pst_conv_tile *t)
{
    if (t->rows == 1)
        sums_of_one(t);
    else
        sums_of_all(t);
}

/* --- dot products ------------------------------------------------------- */

static PST_ALWAYS_INLINE void dot_tile(int rows, int nt,
                                       const struct pst_conv_tile *t, int64_t k)
{
    pst_vec acc[PST_CONV_ROWS][ONE] = {0};
    const float *x[ONE];

#pragma GCC unroll 8
    for (int j = 0; j < nt; j++)
        x[j] = t->x + t->offset[k + j];
    for (int64_t i = 0; i < t->n; i += VEC) {
        pst_vec y[PST_CONV_ROWS];

#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            y[r] = *(const pst_vec *)(t->y + r * t->ldy + i);
#pragma GCC unroll 8
        for (int j = 0; j < nt; j++) {
            const pst_vec at = *(const pst_vec *)(x[j] + i);

#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                acc[r][j] += y[r] * at;
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < nt; j++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            *(pst_vec *)(t->lanes + ((k + j) * rows + r) * PST_CONV_LANES) +=
                acc[r][j];
}

static void all_dots(const struct pst_conv_tile *t)
{
    int64_t k = 0;

    if (t->rows == 1) {
        for (; k + ONE <= t->taps; k += ONE)
            dot_tile(1, ONE, t, k);
        for (; k + 3 <= t->taps; k += 3)
            dot_tile(1, 3, t, k);
        for (; k < t->taps; k++)
            dot_tile(1, 1, t, k);
    } else {
        for (; k + FAN <= t->taps; k += FAN)
            dot_tile(PST_CONV_ROWS, FAN, t, k);
        for (; k < t->taps; k++)
            dot_tile(PST_CONV_ROWS, 1, t, k);
    }
}

const struct pst_conv_loops PST_SIMD(pst_conv_loops) = {
    .sums = all_sums,
    .dots = all_dots,
};
