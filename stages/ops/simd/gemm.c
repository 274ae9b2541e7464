// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/ops/simd/simd.h"
#include "stages/ops/simd/tile.h"

#include <string.h>

/*
 * A tile is MR rows by NV vectors of C, its sums in registers; a tile of few
 * rows is wider, so that there are as many sums as the latency of an addition
 * wants. Both operands come as they lie or packed:
 *
 *   A  rows of KC numbers one after another, or for a transposed one MR
 *      neighbours for each k;
 *   B  rows of the panel's width, or in place if they are read once.
 */
#define VEC  PST_TILE_VEC
#define KC   PST_PACKED_KC
#define MC   PST_PACKED_MC
#define LINE PST_PACKED_LINE
#define NV   2 /* vectors of a panel */
#define NW   4 /* ... for few rows */
/* FEW: rows up to which the sums of NW vectors fit the registers; AGAIN: tiles
 * of rows up to which B is read where it lies, if it is not transposed. */
#if defined(__AVX512F__)
#define MR    12
#define FEW   4
#define AGAIN 3
#else
#define MR    (VEC == 8 ? 6 : 4)
#define FEW   2
#define AGAIN 1
#endif

struct tile {
    int64_t k;
    const float *a;
    int64_t a_row, a_col; /* in place */
    const float *b;
    int64_t ldb;
    const float *next; /* the panel behind, fetched meanwhile */
    int64_t ld_next;
    float *c;
    int64_t ldc, n; /* columns of C that there are */
    bool turned;    /* C is stored column by column */
    float alpha, beta;
};

/* Of a vector of which only n numbers count. */
static void store_some(float *to, int64_t n, pst_vec y, float beta)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = beta == 0.0f ? y[j] : y[j] + beta * to[j];
}

static void store_turned(const struct tile *t, int mr, const float *y,
                         int64_t width)
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

/* How A lies: constants where it is packed. */
enum form { ROWS, COLS, IN_PLACE, N_FORMS };

static PST_ALWAYS_INLINE void multiply(const struct tile *t, int mr, int nv,
                                       enum form form)
{
    const int64_t row = form == ROWS ? LINE : form == COLS ? 1 : t->a_row;
    const int64_t col = form == ROWS ? 1 : form == COLS ? MR : t->a_col;
    pst_vec acc[MR][NW] = {0};
    const float *a = t->a, *b = t->b, *next = t->next;

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
#pragma GCC unroll 12
        for (int i = 0; i < mr; i++) {
            const float s = a[i * row];

#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                acc[i][v] += s * at[v];
        }
    }
    store(t, mr, nv, acc);
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

/* Rows [0, m) of A, k deep. By columns, whole vectors are copied where MR
 * numbers count: the next column overwrites the rest. */
static void pack_a(bool trans, int64_t m, int64_t k, const float *a,
                   int64_t lda, float *to)
{
    for (int64_t i = 0; !trans && i < m; i++)
        memcpy(to + i * LINE, a + i * lda, (size_t)k * sizeof(*to));
    for (int64_t p = 0; trans && p < k; p++, a += lda) {
        int64_t i = 0;

        for (; i + VEC <= m; i += MR)
            *(pst_vec *)(to + i * LINE + p * MR) = *(const pst_vec *)(a + i);
        for (; i < m; i += MR)
            for (int64_t j = i; j < m && j < i + MR; j++)
                to[i * LINE + p * MR + j - i] = a[j];
    }
}

static PST_ALWAYS_INLINE void copy_rows(int nv, int64_t k, const float *b,
                                        int64_t ldb, float *to)
{
    for (int64_t p = 0; p < k; p++, b += ldb, to += nv * VEC)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            *(pst_vec *)(to + v * VEC) = *(const pst_vec *)(b + v * VEC);
}

/* Columns [0, n) of B, k deep, into rows of nv vectors, zeros behind. */
static void pack_b(bool trans, int64_t n, int64_t k, const float *b,
                   int64_t ldb, int64_t nv, float *to)
{
    const int64_t width = nv * VEC;

    if (n < width)
        memset(to, 0, (size_t)(k * width) * sizeof(*to));
    if (trans)
        pst_tile_transpose(n, k, b, ldb, to, width);
    else if (n < width)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                to[p * width + j] = b[p * ldb + j];
    else if (nv == 1)
        copy_rows(1, k, b, ldb, to);
    else if (nv == 2)
        copy_rows(2, k, b, ldb, to);
    else if (nv == 3)
        copy_rows(3, k, b, ldb, to);
    else
        copy_rows(4, k, b, ldb, to);
}

/* C (m, n) += of a block of A, k deep. */
struct block {
    const struct pst_gemm *g;
    int64_t m, k;
    const float *a, *b;
    enum form form;
    float *c;
    bool turned;
    float beta;
    float *room; /* of a panel of B */
};

static void panels(const struct block *w)
{
    const struct pst_gemm *g = w->g;
    const int64_t most = (w->m <= FEW ? NW : NV) * VEC;
    const bool in_place = w->m <= AGAIN * MR && !g->tb;

    for (int64_t j = 0; j < g->n; j += most) {
        const int64_t n = PST_MIN(g->n - j, most);
        const int64_t nv = (n + VEC - 1) / VEC;
        struct tile t = {.k = w->k,
                         .a_row = g->ta ? 1 : g->lda,
                         .a_col = g->ta ? g->lda : 1,
                         .b = w->room,
                         .ldb = nv * VEC,
                         .ldc = g->ldc,
                         .n = n,
                         .turned = w->turned,
                         .alpha = (float)g->alpha,
                         .beta = w->beta};

        if (in_place && n == nv * VEC) {
            t.b = w->b + j;
            t.ldb = g->ldb;
        } else {
            pack_b(g->tb, n, w->k, w->b + (g->tb ? j * g->ldb : j), g->ldb, nv,
                   w->room);
        }
        for (int64_t i = 0; i < w->m; i += MR) {
            const int64_t mr = PST_MIN(w->m - i, MR);
            const bool fetch = i == 0 && !g->tb && j + most < g->n;

            t.a = w->a + i * (w->form == IN_PLACE ? t.a_row : LINE);
            t.c = w->c + (w->turned ? i + j * g->ldc : i * g->ldc + j);
            t.next = fetch ? w->b + j + most : t.b;
            t.ld_next = fetch ? g->ldb : 0;
            tiles[w->form][mr - 1][nv - 1](&t);
        }
    }
}

/* Rows of a block: as many as the others, whole tiles. */
static int64_t rows_of(int64_t m)
{
    const int64_t blocks = (m + MC - 1) / MC;

    return ((m + blocks - 1) / blocks + MR - 1) / MR * MR;
}

static void run(const struct pst_gemm *g, const float *a, const float *b,
                float *c, bool turned, float *room)
{
    /* One panel reads A once. */
    const bool once = g->n <= NV * VEC && !g->ta;
    const int64_t mc = once ? g->m : rows_of(g->m);

    for (int64_t p = 0; p < g->k; p += KC)
        for (int64_t i = 0; i < g->m; i += mc) {
            struct block w = {.g = g,
                              .m = PST_MIN(g->m - i, mc),
                              .k = PST_MIN(g->k - p, KC),
                              .a =
                                  a + (g->ta ? p * g->lda + i : i * g->lda + p),
                              .b = b + (g->tb ? p : p * g->ldb),
                              .form = once    ? IN_PLACE
                                      : g->ta ? COLS
                                              : ROWS,
                              .c = c + (turned ? i : i * g->ldc),
                              .turned = turned,
                              .beta = p == 0 ? (float)g->beta : 1.0f,
                              .room = room + MC * LINE + VEC};

            if (!once) {
                pack_a(g->ta, w.m, w.k, w.a, g->lda, room);
                w.a = room;
            }
            panels(&w);
        }
}

/* --- few rows, B transposed: sums along k ------------------------------- */

#define PART(x, i)                                                             \
    __builtin_shufflevector(x, x, 4 * (i), 4 * (i) + 1, 4 * (i) + 2,           \
                            4 * (i) + 3)

/* Four numbers of which the sum is that of x. */
static PST_ALWAYS_INLINE pst_vec4 fold(pst_vec x)
{
#if VEC == 16
    return (PART(x, 0) + PART(x, 2)) + (PART(x, 1) + PART(x, 3));
#elif VEC == 8
    return PART(x, 0) + PART(x, 1);
#else
    return x;
#endif
}

/* Pairs of two registers, so that sums of halves are sums of both. */
#define LOW(x, y)  __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define HIGH(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)

/* C (mr, 4): a and b have rows of k numbers. */
static PST_ALWAYS_INLINE void dots(int mr, const struct pst_gemm *g,
                                   const float *a, const float *b, float *c)
{
    pst_vec acc[FEW][4] = {0};
    int64_t p = 0;

    for (; p + VEC <= g->k; p += VEC)
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                acc[i][j] += *(const pst_vec *)(a + i * g->lda + p) *
                             *(const pst_vec *)(b + j * g->ldb + p);
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
        const pst_vec4 x0 = fold(acc[i][0]), x1 = fold(acc[i][1]);
        const pst_vec4 x2 = fold(acc[i][2]), x3 = fold(acc[i][3]);
        const pst_vec4 low = LOW(x0, x1) + HIGH(x0, x1);
        const pst_vec4 high = LOW(x2, x3) + HIGH(x2, x3);
        pst_vec4 y = __builtin_shufflevector(low, high, 0, 1, 4, 5) +
                     __builtin_shufflevector(low, high, 2, 3, 6, 7);
        pst_vec4 *to = (pst_vec4 *)(c + i * g->ldc);

        for (int64_t q = p; q < g->k; q++)
            y += a[i * g->lda + q] * (pst_vec4){b[q], b[g->ldb + q],
                                                b[2 * g->ldb + q],
                                                b[3 * g->ldb + q]};
        y *= (float)g->alpha;
        if (g->beta == 0.0)
            *to = y;
        else
            *to = y + (float)g->beta * *to;
    }
#undef LOW
#undef HIGH
}

static void few_rows(const struct pst_gemm *g, const float *a, const float *b,
                     float *c)
{
    for (int64_t j = 0; j < g->n; j += 4)
        for (int64_t i = 0; i < g->m;) {
            const float *ai = a + i * g->lda, *bj = b + j * g->ldb;
            float *to = c + i * g->ldc + j;

            if (g->m - i >= FEW) {
                dots(FEW, g, ai, bj, to);
                i += FEW;
            } else {
                dots(1, g, ai, bj, to);
                i++;
            }
        }
}

/* A narrow C of a transposed A is computed as its transposed: then A is what
 * stays where it lies, and its rows are read in order. */
void PST_SIMD(pst_simd_gemm)(const struct pst_gemm *g, const float *a,
                             const float *b, float *c, float *room)
{
    const struct pst_gemm swapped = {.ta = !g->tb,
                                     .tb = !g->ta,
                                     .m = g->n,
                                     .n = g->m,
                                     .k = g->k,
                                     .lda = g->ldb,
                                     .ldb = g->lda,
                                     .ldc = g->ldc,
                                     .alpha = g->alpha,
                                     .beta = g->beta};

    if (!g->ta && g->tb && g->m <= 4 && g->n % 4 == 0)
        few_rows(g, a, b, c);
    else if (g->ta && g->n <= AGAIN * MR && g->n < g->m)
        run(&swapped, b, a, c, true, room);
    else
        run(g, a, b, c, false, room);
}
