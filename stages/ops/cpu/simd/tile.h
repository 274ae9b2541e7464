// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_TILE_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_TILE_H
/*
 * Matmuls of small matrices without packing: C (m, n) (+)= alpha A B, where A
 * has any strides (it is broadcast number by number), rows of B and C are
 * contiguous. For operands that fit the second-level cache, where the packing
 * of the libraries costs as much as the matmul itself.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

/* Floats per vector; a tile is PST_TILE_M rows of two vectors. The
 * accumulators, two vectors of B and a broadcast fit the registers. */
#if defined(__AVX512F__)
#define PST_TILE_VEC 16
#define PST_TILE_M   8
#elif defined(__AVX2__)
#define PST_TILE_VEC 8
#define PST_TILE_M   4
#else
#define PST_TILE_VEC 4
#define PST_TILE_M   4
#endif

typedef float pst_vec PST_VECTOR(PST_TILE_VEC * 4);

/* Parts of a triangular problem that are computed: rows of the score matrix are
 * queries, its columns keys, and only key <= query + shift is valid. */
enum pst_tile_part {
    PST_TILE_ALL,
    PST_TILE_SCORES, /* C is the score matrix: skips tiles right of the diagonal
                      */
    PST_TILE_BY_ROW, /* A is the score matrix: row i ends after column i + shift
                      */
    PST_TILE_BY_COL, /* A is its transpose: row j starts at row j - shift */
};

struct pst_tile {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    int64_t a_row, a_col, ldb, ldc;
    float alpha;
    bool add;
    enum pst_tile_part part;
    int64_t shift;
};

static PST_ALWAYS_INLINE void tile_run(int mr, int nv, int64_t k,
                                       const float *a, int64_t a_row,
                                       int64_t a_col, const float *b,
                                       int64_t ldb, float *c, int64_t ldc,
                                       float alpha, bool add)
{
    pst_vec acc[PST_TILE_M][2] = {0};

    for (int64_t p = 0; p < k; p++) {
        const pst_vec b0 = *(const pst_vec *)(b + p * ldb);
        const pst_vec b1 =
            nv > 1 ? *(const pst_vec *)(b + p * ldb + PST_TILE_VEC) : b0;

#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            const float s = a[i * a_row + p * a_col];

            acc[i][0] += s * b0;
            if (nv > 1)
                acc[i][1] += s * b1;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            pst_vec *to = (pst_vec *)(c + i * ldc + v * PST_TILE_VEC);

            if (add)
                *to += alpha * acc[i][v];
            else
                *to = alpha * acc[i][v];
        }
}

/* Computes columns that do not fill a vector. */
static inline void tile_rest(const struct pst_tile *t, int64_t row, int mr,
                             int64_t col, int64_t n, int64_t k0, int64_t k1)
{
    for (int64_t i = row; i < row + mr; i++)
        for (int64_t j = col; j < col + n; j++) {
            float *to = &t->c[i * t->ldc + j], sum = 0.0f;

            for (int64_t p = k0; p < k1; p++)
                sum += t->a[i * t->a_row + p * t->a_col] * t->b[p * t->ldb + j];
            *to = t->add ? *to + t->alpha * sum : t->alpha * sum;
        }
}

static inline void tile_rows(const struct pst_tile *t, int64_t row, int mr,
                             int64_t col, int nv)
{
    int64_t k0 = 0, k1 = t->k;

    if (t->part == PST_TILE_SCORES && col > row + mr - 1 + t->shift)
        return;
    if (t->part == PST_TILE_BY_ROW && row + mr + t->shift < k1)
        k1 = row + mr + t->shift;
    if (t->part == PST_TILE_BY_COL && row - t->shift > 0)
        k0 = row - t->shift;
    if (k0 >= k1 && t->add)
        return;

    const float *a = t->a + row * t->a_row + k0 * t->a_col;
    const float *b = t->b + k0 * t->ldb + col;
    float *c = t->c + row * t->ldc + col;

#define PST_TILE_CASE(rows, vecs)                                              \
    tile_run(rows, vecs, k1 - k0, a, t->a_row, t->a_col, b, t->ldb, c, t->ldc, \
             t->alpha, t->add)
    if (nv == 0)
        tile_rest(t, row, mr, col, t->n - col, k0, k1);
    else if (mr == PST_TILE_M && nv == 2)
        PST_TILE_CASE(PST_TILE_M, 2);
    else if (mr == PST_TILE_M)
        PST_TILE_CASE(PST_TILE_M, 1);
    else if (nv == 2)
        PST_TILE_CASE(1, 2);
    else
        PST_TILE_CASE(1, 1);
#undef PST_TILE_CASE
}

static inline void pst_tile_product(const struct pst_tile *t)
{
    int64_t col = 0;

    while (col < t->n) {
        const int64_t left = t->n - col;
        const int nv = left >= 2 * PST_TILE_VEC ? 2 : left >= PST_TILE_VEC;
        int64_t row = 0;

        for (; row + PST_TILE_M <= t->m; row += PST_TILE_M)
            tile_rows(t, row, PST_TILE_M, col, nv);
        for (; row < t->m; row++)
            tile_rows(t, row, 1, col, nv);
        col = nv == 0 ? t->n : col + nv * PST_TILE_VEC;
    }
}

typedef float pst_vec4 PST_VECTOR(16);

/* Transposes 4 x 4 numbers. */
static inline void transpose_4(const float *from, int64_t ld_from, float *to,
                               int64_t ld_to)
{
    const pst_vec4 a = *(const pst_vec4 *)from;
    const pst_vec4 b = *(const pst_vec4 *)(from + ld_from);
    const pst_vec4 c = *(const pst_vec4 *)(from + 2 * ld_from);
    const pst_vec4 d = *(const pst_vec4 *)(from + 3 * ld_from);
    const pst_vec4 ac0 = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    const pst_vec4 ac2 = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const pst_vec4 bd0 = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    const pst_vec4 bd2 = __builtin_shufflevector(b, d, 2, 6, 3, 7);

    *(pst_vec4 *)to = __builtin_shufflevector(ac0, bd0, 0, 4, 1, 5);
    *(pst_vec4 *)(to + ld_to) = __builtin_shufflevector(ac0, bd0, 2, 6, 3, 7);
    *(pst_vec4 *)(to + 2 * ld_to) =
        __builtin_shufflevector(ac2, bd2, 0, 4, 1, 5);
    *(pst_vec4 *)(to + 3 * ld_to) =
        __builtin_shufflevector(ac2, bd2, 2, 6, 3, 7);
}

#if defined(__AVX2__)
#define PST_TILE_TURN 8

typedef float pst_vec8 PST_VECTOR(32);

/* Loads 4 numbers of row 0 and of row 4. */
static inline pst_vec8 two_rows(const float *from, int64_t ld)
{
    return __builtin_shufflevector(*(const pst_vec4 *)from,
                                   *(const pst_vec4 *)(from + 4 * ld), 0, 1, 2,
                                   3, 4, 5, 6, 7);
}

/* Transposes 8 x 4 numbers: both halves of a register at once. */
static inline void transpose_8x4(const float *from, int64_t ld_from, float *to,
                                 int64_t ld_to)
{
    const pst_vec8 a = two_rows(from, ld_from);
    const pst_vec8 b = two_rows(from + ld_from, ld_from);
    const pst_vec8 c = two_rows(from + 2 * ld_from, ld_from);
    const pst_vec8 d = two_rows(from + 3 * ld_from, ld_from);
#define LOW(x, y)  __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(x, y) __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15)
    const pst_vec8 ac0 = LOW(a, c), ac2 = HIGH(a, c);
    const pst_vec8 bd0 = LOW(b, d), bd2 = HIGH(b, d);

    *(pst_vec8 *)to = LOW(ac0, bd0);
    *(pst_vec8 *)(to + ld_to) = HIGH(ac0, bd0);
    *(pst_vec8 *)(to + 2 * ld_to) = LOW(ac2, bd2);
    *(pst_vec8 *)(to + 3 * ld_to) = HIGH(ac2, bd2);
#undef LOW
#undef HIGH
}
#else
#define PST_TILE_TURN 4
#endif

/* Transposes 4 columns of PST_TILE_TURN rows. */
static inline void transpose_block(const float *from, int64_t ld_from,
                                   float *to, int64_t ld_to)
{
#if PST_TILE_TURN == 8
    transpose_8x4(from, ld_from, to, ld_to);
#else
    transpose_4(from, ld_from, to, ld_to);
#endif
}

/* to (cols, rows) := from (rows, cols) transposed, in blocks that read whole
 * cache lines. */
static inline void pst_tile_transpose(int64_t rows, int64_t cols,
                                      const float *from, int64_t ld_from,
                                      float *to, int64_t ld_to)
{
    const int64_t whole = rows / PST_TILE_TURN * PST_TILE_TURN;
    const int64_t rows4 = rows / 4 * 4, cols4 = cols / 4 * 4;

    for (int64_t c0 = 0; c0 < cols4; c0 += 16) {
        int64_t r = 0;

        for (; r < whole; r += PST_TILE_TURN)
            for (int64_t c = c0; c < cols4 && c < c0 + 16; c += 4)
                transpose_block(from + r * ld_from + c, ld_from,
                                to + c * ld_to + r, ld_to);
        for (; r < rows4; r += 4)
            for (int64_t c = c0; c < cols4 && c < c0 + 16; c += 4)
                transpose_4(from + r * ld_from + c, ld_from, to + c * ld_to + r,
                            ld_to);
    }
    for (int64_t r = rows4; r < rows; r++)
        for (int64_t c = 0; c < cols4; c++)
            to[c * ld_to + r] = from[r * ld_from + c];
    for (int64_t c = cols4; c < cols; c++)
        for (int64_t r = 0; r < rows; r++)
            to[c * ld_to + r] = from[r * ld_from + c];
}

#endif
