// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/narrow.h"

#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/cpu/simd/tile.h"

#include <string.h>

#define VEC PST_TILE_VEC
#define NV  2 /* vectors of a tile */
/* Size of the other dimension of a tile that is one vector (M1) or two (M2)
 * wide: accumulators, a row and a broadcast number fit the registers. */
#if defined(__AVX512F__)
#define M1 16
#define M2 12
#else
#define M1 (VEC == 8 ? 12 : 8)
#define M2 (VEC == 8 ? 6 : 4)
#endif
#define LD 16 /* leading dimension of a transposed tile; at least M1 */

/* Returns the size of the parts that n is divided into, at most `most`. All
 * parts are equal, except that the last one may be smaller. */
static int64_t part_of(int64_t n, int64_t most)
{
    const int64_t parts = (n + most - 1) / most;

    return parts == 0 ? 1 : (n + parts - 1) / parts;
}

/* --- sums ----------------------------------------------------------------- */

static PST_ALWAYS_INLINE void copy_few(int64_t n, const float *from, float *to)
{
    if (n >= 8) {
        memcpy(to, from, 8 * sizeof(*to));
        memcpy(to + n - 8, from + n - 8, 8 * sizeof(*to));
    } else if (n >= 4) {
        memcpy(to, from, 4 * sizeof(*to));
        memcpy(to + n - 4, from + n - 4, 4 * sizeof(*to));
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
    }
}

/* Stores rows [0, rows) of a tile, m positions of each, at y. */
static void store(const struct pst_narrow_sums *s, int64_t m, int64_t rows,
                  const float *tile, int64_t width, float *y)
{
    float turned[NV * VEC * LD];

    pst_tile_transpose(LD, width, tile, width, turned, LD);
    for (int64_t r = 0; r < rows; r++, y += s->ldy) {
        const float *from = turned + r * LD;

        if (s->add)
            for (int64_t i = 0; i < m; i++)
                y[i] += from[i];
        else
            copy_few(m, from, y);
    }
}

static PST_ALWAYS_INLINE void sum_tile(const struct pst_narrow_sums *s, int m,
                                       int nv, int64_t i, int64_t col)
{
    const float *x = s->x + i, *w = s->w + col;
    pst_vec acc[M1][NV], tile[LD * NV];

#pragma GCC unroll 16
    for (int e = 0; e < m; e++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[e][v] = *(const pst_vec *)(s->bias + col + v * VEC);
    for (int64_t t = 0; t < s->taps; t++, w += s->width) {
        const float *at = x + s->offset[t];
        pst_vec row[NV];

#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            row[v] = *(const pst_vec *)(w + v * VEC);
#pragma GCC unroll 16
        for (int e = 0; e < m; e++)
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                acc[e][v] += at[e] * row[v];
    }
#pragma GCC unroll 16
    for (int e = 0; e < LD; e++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            tile[e * nv + v] = e < m ? acc[e][v] : (pst_vec){0};
    store(s, m, PST_MIN(s->rows - col, nv * VEC), (const float *)tile, nv * VEC,
          s->y + col * s->ldy + i);
}

/* --- dots ----------------------------------------------------------------- */

static PST_ALWAYS_INLINE void dot_tile(const struct pst_narrow_dots *s, int m,
                                       int nv, int64_t row, int64_t col)
{
    const int64_t ldy = s->ldy, width = s->width;
    float *to = s->sums + row * width + col;
    pst_vec acc[M1][NV];

#pragma GCC unroll 16
    for (int e = 0; e < m; e++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[e][v] = *(const pst_vec *)(to + e * width + v * VEC);
    for (int64_t l = 0; l < s->lines; l++) {
        const float *y = s->y + row * ldy + l * s->y_line;
        const float *x = s->x + l * s->x_line + col;

        for (int64_t i = 0; i < s->n; i++, y++, x += width) {
            pst_vec at[NV];

#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                at[v] = *(const pst_vec *)(x + v * VEC);
#pragma GCC unroll 16
            for (int e = 0; e < m; e++)
#pragma GCC unroll 2
                for (int v = 0; v < nv; v++)
                    acc[e][v] += y[e * ldy] * at[v];
        }
    }
#pragma GCC unroll 16
    for (int e = 0; e < m; e++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            *(pst_vec *)(to + e * width + v * VEC) = acc[e][v];
}

/* --- tiles of every size -------------------------------------------------- */

#define TILE(m, nv)                                                            \
    static void sums_##m##_##nv(const struct pst_narrow_sums *s, int64_t i,    \
                                int64_t col)                                   \
    {                                                                          \
        sum_tile(s, m, nv, i, col);                                            \
    }                                                                          \
    static void dots_##m##_##nv(const struct pst_narrow_dots *s, int64_t row,  \
                                int64_t col)                                   \
    {                                                                          \
        dot_tile(s, m, nv, row, col);                                          \
    }
#define SUMS(m, nv) [nv - 1][m - 1] = sums_##m##_##nv,
#define DOTS(m, nv) [nv - 1][m - 1] = dots_##m##_##nv,
/* clang-format off */
#define FOUR(X, nv)   X(1, nv) X(2, nv) X(3, nv) X(4, nv)
#define SIX(X, nv)    FOUR(X, nv) X(5, nv) X(6, nv)
#define EIGHT(X, nv)  SIX(X, nv) X(7, nv) X(8, nv)
#define TWELVE(X, nv) EIGHT(X, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#if defined(__AVX512F__)
#define TILES(X) TWELVE(X, 1) X(13, 1) X(14, 1) X(15, 1) X(16, 1) TWELVE(X, 2)
#elif defined(__AVX2__)
#define TILES(X) TWELVE(X, 1) SIX(X, 2)
#else
#define TILES(X) EIGHT(X, 1) FOUR(X, 2)
#endif
/* clang-format on */
TILES(TILE)

static void (*const sums_of[NV][M1])(const struct pst_narrow_sums *s, int64_t i,
                                     int64_t col) = {TILES(SUMS)};
static void (*const dots_of[NV][M1])(const struct pst_narrow_dots *s,
                                     int64_t row, int64_t col) = {TILES(DOTS)};

/* Returns how many vectors the panel at a column has. */
static int count_vectors(int64_t width, int64_t col)
{
    return width - col > VEC ? 2 : 1;
}

static void all_sums(const struct pst_narrow_sums *s)
{
    for (int64_t col = 0, nv; col < s->width; col += nv * VEC) {
        nv = count_vectors(s->width, col);
        const int64_t step = part_of(s->n, nv == 1 ? M1 : M2);

        for (int64_t i = 0; i < s->n; i += step)
            sums_of[nv - 1][PST_MIN(step, s->n - i) - 1](s, i, col);
    }
}

static void all_dots(const struct pst_narrow_dots *s)
{
    for (int64_t col = 0, nv; col < s->width; col += nv * VEC) {
        nv = count_vectors(s->width, col);
        const int64_t step = part_of(s->rows, nv == 1 ? M1 : M2);

        for (int64_t row = 0; row < s->rows; row += step)
            dots_of[nv - 1][PST_MIN(step, s->rows - row) - 1](s, row, col);
    }
}

static void transpose_tile(int64_t rows, int64_t cols, const float *from,
                           int64_t ld_from, float *to, int64_t ld_to)
{
    pst_tile_transpose(rows, cols, from, ld_from, to, ld_to);
}

const struct pst_narrow_loops PST_SIMD(pst_narrow_loops) = {
    .sums = all_sums,
    .dots = all_dots,
    .turn = transpose_tile,
};
