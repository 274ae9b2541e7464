// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_GEMM_TILE_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_GEMM_TILE_H
/*
 * Tiles of a GEMM, for gemm.c: at most MR rows by NV vectors of C, with
 * accumulators in registers; a tile of few rows is wider, so that there are
 * enough accumulators to hide the latency of additions. Each operand is read in
 * place, or it is packed:
 *
 *   A  as consecutive rows of KC numbers; if it is transposed, the rows of a
 *      tile are interleaved for each k;
 *   B  as rows of the panel's width. A tile that reads B in place may pack it
 *      for the following tiles.
 */
#include "stages/ops/cpu/simd/tile.h"
#include "stages/ops/matmul/packed.h"

#define VEC  PST_TILE_VEC
#define KC   PST_PACKED_KC
#define LINE PST_PACKED_LINE
#define NV   2 /* vectors of a panel */
#define NW   4 /* vectors of a panel for at most FEW rows */
/* FEW: maximum rows for which NW vectors of accumulators fit the registers. */
#if defined(__AVX512F__)
#define MR  12
#define FEW 4
#else
#define MR  (VEC == 8 ? 6 : 4)
#define FEW 2
#endif

struct tile {
    int64_t k;
    const float *a;
    /* strides of A if it is read in place; a_col also if it is packed by
     * columns */
    int64_t a_row, a_col;
    const float *b;
    int64_t ldb;
    const int64_t *taps; /* for a tile that packs: offsets of B's rows */
    float *packed;       /* destination of the packed rows */
    const float *next;   /* next panel, which is prefetched */
    int64_t ld_next;
    float *c;
    int64_t ldc, n; /* n: columns of the tile that exist in C */
    bool turned;    /* C is stored column by column */
    float alpha, beta;
};

/*
 * Stores only the first n numbers of a vector. Not inlined, like the next
 * function: with sanitizers, inlining them in a hundred tiles took minutes to
 * compile.
 */
static PST_NOINLINE void store_some(float *to, int64_t n, pst_vec y, float beta)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = beta == 0.0f ? y[j] : y[j] + beta * to[j];
}

static PST_NOINLINE void store_turned(const struct tile *t, int mr,
                                      const float *y, int64_t width)
{
    for (int64_t j = 0; j < t->n; j++)
        for (int64_t i = 0; i < mr; i++) {
            float *to = &t->c[j * t->ldc + i];
            const float now = t->alpha * y[i * width + j];

            *to = t->beta == 0.0f ? now : now + t->beta * *to;
        }
}

static PST_ALWAYS_INLINE void store(const struct tile *t, int mr, int nv,
                                    pst_vec acc[MR][NW])
{
    const pst_vec alpha = (pst_vec){0} + t->alpha;

    if (t->turned) {
        pst_vec y[MR * NW];

#pragma GCC unroll 12
        for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                y[i * nv + v] = acc[i][v];
        store_turned(t, mr, (const float *)y, nv * VEC);
        return;
    }
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            float *to = t->c + i * t->ldc + v * VEC;
            const pst_vec y = alpha * acc[i][v];

            if (t->n < (v + 1) * VEC)
                store_some(to, t->n - v * VEC, y, t->beta);
            else if (t->beta == 0.0f)
                *(pst_vec *)to = y;
            else
                *(pst_vec *)to = y + t->beta * *(const pst_vec *)to;
        }
}

/* Layout of A: packed by rows (strides LINE, 1) or by columns (1, rows of a
 * tile), or read in place with its own strides. */
enum form { ROWS, COLS, IN_PLACE, N_FORMS };

/* sums += a column of A times a row of B. */
static PST_ALWAYS_INLINE void add_row(pst_vec acc[MR][NW], int mr, int nv,
                                      const float *a, int64_t row,
                                      const pst_vec at[NW])
{
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++) {
        const float s = a[i * row];

#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            acc[i][v] += s * at[v];
    }
}

static PST_ALWAYS_INLINE void fetch_tile(const struct tile *t, int mr, int nv)
{
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            __builtin_prefetch(t->c + i * t->ldc + v * VEC, 1);
}

static PST_ALWAYS_INLINE void multiply(const struct tile *t, int mr, int nv,
                                       enum form form)
{
    const int64_t row = form == ROWS ? LINE : form == COLS ? 1 : t->a_row;
    const int64_t col = form == ROWS ? 1 : t->a_col;
    pst_vec acc[MR][NW] = {0};
    const float *a = t->a, *b = t->b, *next = t->next;

    if (!t->turned)
        fetch_tile(t, mr, nv);
    for (int64_t p = 0; p < t->k; p++, a += col, b += t->ldb) {
        pst_vec at[NW];

        if (mr > 2) {
            __builtin_prefetch(next);
            if (nv > 1)
                __builtin_prefetch(next + VEC);
            next += t->ld_next;
        }

#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            at[v] = *(const pst_vec *)(b + v * VEC);
        add_row(acc, mr, nv, a, row, at);
    }
    store(t, mr, nv, acc);
}

/* Does the same as multiply() with a panel of B that is read by its taps and
 * packed at the same time; the panel of the next columns is prefetched. */
static PST_ALWAYS_INLINE void multiply_packing(const struct tile *t, int mr,
                                               enum form form)
{
    const int64_t row = form == ROWS ? LINE : form == COLS ? 1 : t->a_row;
    const int64_t col = form == ROWS ? 1 : t->a_col;
    pst_vec acc[MR][NW] = {0};
    const float *a = t->a;
    float *packed = t->packed;

    fetch_tile(t, mr, NV);
    for (int64_t p = 0; p < t->k; p++, a += col, packed += NV * VEC) {
        const float *b = t->b + t->taps[p];
        pst_vec at[NW];

        __builtin_prefetch(b + NV * VEC);
        __builtin_prefetch(b + (NV + 1) * VEC);
#pragma GCC unroll 2
        for (int v = 0; v < NV; v++) {
            at[v] = *(const pst_vec *)(b + v * VEC);
            *(pst_vec *)(packed + v * VEC) = at[v];
        }
        add_row(acc, mr, NV, a, row, at);
    }
    store(t, mr, NV, acc);
}

#define TILE_OF(mr, nv, name, form)                                            \
    static void name##_##mr##_##nv(const struct tile *t)                       \
    {                                                                          \
        multiply(t, mr, nv, form);                                             \
    }
#define TILE(mr, nv)                                                           \
    TILE_OF(mr, nv, rows, ROWS)                                                \
    TILE_OF(mr, nv, cols, COLS)                                                \
    TILE_OF(mr, nv, place, IN_PLACE)
/* clang-format off */
#define FOUR(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv)
#if defined(__AVX512F__)
#define MORE(X, nv)                                                            \
    X(5, nv) X(6, nv) X(7, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#elif defined(__AVX2__)
#define MORE(X, nv) X(5, nv) X(6, nv)
#else
#define MORE(X, nv)
#endif
#define TILES(X)                                                               \
    FOUR(X, 1) FOUR(X, 2) FOUR(X, 3) FOUR(X, 4) MORE(X, 1) MORE(X, 2)
/* clang-format on */
TILES(TILE)

typedef void (*tile_fn)(const struct tile *t);
#define BY_ROWS(mr, nv)  [mr - 1][nv - 1] = rows_##mr##_##nv,
#define BY_COLS(mr, nv)  [mr - 1][nv - 1] = cols_##mr##_##nv,
#define BY_PLACE(mr, nv) [mr - 1][nv - 1] = place_##mr##_##nv,
static const tile_fn tiles[N_FORMS][MR][NW] = {
    [ROWS] = {TILES(BY_ROWS)},
    [COLS] = {TILES(BY_COLS)},
    [IN_PLACE] = {TILES(BY_PLACE)},
};

#define PACKING_OF(mr, name, form)                                             \
    static void name##_packing_##mr(const struct tile *t)                      \
    {                                                                          \
        multiply_packing(t, mr, form);                                         \
    }
#define PACKING(mr, nv)                                                        \
    PACKING_OF(mr, rows, ROWS)                                                 \
    PACKING_OF(mr, cols, COLS)                                                 \
    PACKING_OF(mr, place, IN_PLACE)
#define PACKINGS(X) FOUR(X, NV) MORE(X, NV)
PACKINGS(PACKING)

#define PACKING_ROWS(mr, nv)  [mr - 1] = rows_packing_##mr,
#define PACKING_COLS(mr, nv)  [mr - 1] = cols_packing_##mr,
#define PACKING_PLACE(mr, nv) [mr - 1] = place_packing_##mr,
/* Functions for tiles of NV vectors that also pack B: by layout of A and
 * rows. */
static const tile_fn packing_tiles[N_FORMS][MR] = {
    [ROWS] = {PACKINGS(PACKING_ROWS)},
    [COLS] = {PACKINGS(PACKING_COLS)},
    [IN_PLACE] = {PACKINGS(PACKING_PLACE)},
};

#endif
