// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/cpu/simd/tile.h"

/*
 * GEMM of a few rows of A and a transposed B: both are read in place along k,
 * with sums in registers; the lanes of all sums of a tile are added together.
 */
#define VEC  PST_TILE_VEC
#define COLS 4
#define DEEP 1024 /* step along k: rows of A then stay in the L1 cache */
#if VEC == 16
#define ROWS 4
#else
#define ROWS 2
#endif

/* Shuffles within parts of four numbers, and of whole parts. */
#if VEC == 16
#define LOW(x, y)                                                              \
    __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25,    \
                            12, 28, 13, 29)
#define HIGH(x, y)                                                             \
    __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,  \
                            14, 30, 15, 31)
#define FIRST(x, y)                                                            \
    __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25,    \
                            12, 13, 28, 29)
#define LAST(x, y)                                                             \
    __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27,  \
                            14, 15, 30, 31)
#define PARTS(x, y, i, j)                                                      \
    __builtin_shufflevector(x, y, 4 * (i), 4 * (i) + 1, 4 * (i) + 2,           \
                            4 * (i) + 3, 4 * (j), 4 * (j) + 1, 4 * (j) + 2,    \
                            4 * (j) + 3, 16 + 4 * (i), 17 + 4 * (i),           \
                            18 + 4 * (i), 19 + 4 * (i), 16 + 4 * (j),          \
                            17 + 4 * (j), 18 + 4 * (j), 19 + 4 * (j))
#elif VEC == 8
#define LOW(x, y)   __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(x, y)  __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15)
#define FIRST(x, y) __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13)
#define LAST(x, y)  __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define LOW(x, y)   __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define HIGH(x, y)  __builtin_shufflevector(x, y, 2, 6, 3, 7)
#define FIRST(x, y) __builtin_shufflevector(x, y, 0, 1, 4, 5)
#define LAST(x, y)  __builtin_shufflevector(x, y, 2, 3, 6, 7)
#endif

/* Returns a vector whose parts each have one number of every x[j]: adding the
 * parts gives the four sums. */
static PST_ALWAYS_INLINE pst_vec fold_parts(const pst_vec x[COLS])
{
    const pst_vec a = LOW(x[0], x[1]) + HIGH(x[0], x[1]);
    const pst_vec b = LOW(x[2], x[3]) + HIGH(x[2], x[3]);

    return FIRST(a, b) + LAST(a, b);
}

/* Sums the parts of each vector r[i], i < mr, to its four dot products. */
static PST_ALWAYS_INLINE void add_parts(int mr, const pst_vec r[ROWS],
                                        pst_vec4 ret[ROWS])
{
#if VEC == 16
    const pst_vec a = r[0], b = mr > 1 ? r[1] : a;
    const pst_vec c = mr > 2 ? r[2] : a, d = mr > 3 ? r[3] : c;
    const pst_vec s = PARTS(a, b, 0, 1) + PARTS(a, b, 2, 3);
    const pst_vec t = PARTS(c, d, 0, 1) + PARTS(c, d, 2, 3);
    const pst_vec y = PARTS(s, t, 0, 2) + PARTS(s, t, 1, 3);

    ret[0] = __builtin_shufflevector(y, y, 0, 1, 2, 3);
    ret[1] = __builtin_shufflevector(y, y, 4, 5, 6, 7);
    ret[2] = __builtin_shufflevector(y, y, 8, 9, 10, 11);
    ret[3] = __builtin_shufflevector(y, y, 12, 13, 14, 15);
#elif VEC == 8
    for (int i = 0; i < mr; i++)
        ret[i] = __builtin_shufflevector(r[i], r[i], 0, 1, 2, 3) +
                 __builtin_shufflevector(r[i], r[i], 4, 5, 6, 7);
#else
    for (int i = 0; i < mr; i++)
        ret[i] = r[i];
#endif
}

/* Computes C (mr, n) for n up to 4. Rows of a are lda apart; they have k
 * numbers, like those of b. */
static PST_ALWAYS_INLINE void dot_rows(int mr, const struct pst_gemm *g,
                                       int64_t n, const float *a,
                                       const float *const b[COLS], float *c)
{
    pst_vec acc[ROWS][COLS] = {0}, r[ROWS];
    pst_vec4 y[ROWS];
    int64_t p = 0;

    for (; p + VEC <= g->k; p += VEC)
#pragma GCC unroll 4
        for (int j = 0; j < COLS; j++) {
            const pst_vec at = *(const pst_vec *)(b[j] + p);

#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] += *(const pst_vec *)(a + i * g->lda + p) * at;
        }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
        r[i] = fold_parts(acc[i]);
    add_parts(mr, r, y);
    for (; p < g->k; p++) {
        const pst_vec4 at = {b[0][p], b[1][p], b[2][p], b[3][p]};

#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            y[i] += a[i * g->lda + p] * at;
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
        float *to = c + i * g->ldc;
        const pst_vec4 z = (float)g->alpha * y[i];

        if (n < COLS)
            for (int64_t j = 0; j < n; j++)
                to[j] = g->beta == 0.0 ? z[j] : z[j] + (float)g->beta * to[j];
        else if (g->beta == 0.0)
            *(pst_vec4 *)to = z;
        else
            *(pst_vec4 *)to = z + (float)g->beta * *(const pst_vec4 *)to;
    }
}

static void run_rows(const struct pst_gemm *g, int64_t n, const float *a,
                     const float *const b[COLS], float *c)
{
    for (int64_t i = 0; i < g->m; i += ROWS) {
        const float *ai = a + i * g->lda;
        float *ci = c + i * g->ldc;

        switch (PST_MIN(g->m - i, ROWS)) {
        case 1:
            dot_rows(1, g, n, ai, b, ci);
            break;
        case 2:
            dot_rows(2, g, n, ai, b, ci);
            break;
#if ROWS > 2
        case 3:
            dot_rows(3, g, n, ai, b, ci);
            break;
        default:
            dot_rows(4, g, n, ai, b, ci);
            break;
#endif
        }
    }
}

/* True for at most 8 rows, for which packing B does not pay, if k is at least a
 * vector: adding up the lanes costs as much as some dozens of k. */
bool PST_SIMD(pst_simd_dots_preferred)(const struct pst_gemm *g)
{
    return !g->ta && g->tb && g->m <= 8 && g->k >= VEC;
}

void PST_SIMD(pst_simd_dots)(const struct pst_gemm *g, const float *a,
                             const float *b, float *c)
{
    struct pst_gemm part = *g;

    for (int64_t p = 0; p < g->k; p += DEEP, part.beta = 1.0) {
        part.k = PST_MIN(g->k - p, DEEP);
        for (int64_t j = 0; j < g->n; j += COLS) {
            const int64_t n = PST_MIN(g->n - j, COLS);
            const float *at = b + p + j * g->ldb;
            const float *const columns[COLS] = {
                at, at + PST_MIN(1, n - 1) * g->ldb,
                at + PST_MIN(2, n - 1) * g->ldb,
                at + PST_MIN(3, n - 1) * g->ldb};

            run_rows(&part, n, a + p, columns, c + j);
        }
    }
}
