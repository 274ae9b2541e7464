// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/ops/simd/simd.h"
#include "stages/ops/simd/tile.h"
#include "stages/ops/simd/windows.h"

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
#define VEC     PST_TILE_VEC
#define KC      PST_PACKED_KC
#define MC      PST_PACKED_MC
#define LINE    PST_PACKED_LINE
#define NV      2 /* vectors of a panel */
#define NW      4 /* ... for few rows */
#define PANEL   (NV * VEC)
#define OFTEN   3  /* panels for which A is worth packing */
#define SHALLOW 64 /* depths at which C costs more than the operands */
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

    if (!t->turned)
#pragma GCC unroll 12
        for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                __builtin_prefetch(t->c + i * t->ldc + v * VEC, 1);
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

/* --- blocks -------------------------------------------------------------- */

/* C (m, n) += A B for rows of A and columns of B from j on, both from p on. */
struct block {
    const struct pst_gemm *g;
    const struct pst_windows *windows; /* or b */
    int64_t m, n, k, j, p;
    const float *a, *b;
    enum form form;
    float *c;
    bool turned;
    float beta;
    float *room; /* of panels of B */
    float *side; /* of what is turned */
};

/* Columns [j, j + n) of the block, in rows of nv vectors. */
static void pack(const struct block *w, int64_t j, int64_t n, int64_t nv,
                 float *to)
{
    const struct pst_gemm *g = w->g;

    if (w->windows == NULL)
        pack_b(g->tb, n, w->k, w->b + (g->tb ? j * g->ldb : j), g->ldb, nv, to);
    else if (g->tb)
        pst_windows_pack_taps(w->windows, w->p, w->k, w->j + j, n, nv * VEC,
                              w->side, to);
    else
        pst_windows_pack(w->windows, w->p, w->k, w->j + j, n, nv * VEC, to);
}

static struct tile tile_of(const struct block *w, int64_t n, int64_t nv)
{
    const struct pst_gemm *g = w->g;

    return (struct tile){.k = w->k,
                         .a_row = g->ta ? 1 : g->lda,
                         .a_col = g->ta ? g->lda : 1,
                         .ldb = nv * VEC,
                         .ldc = g->ldc,
                         .n = n,
                         .turned = w->turned,
                         .alpha = (float)g->alpha,
                         .beta = w->beta};
}

/* Rows [i, i + MR) of the block with columns from j on. */
static void run_tile(const struct block *w, int64_t i, int64_t j, int64_t nv,
                     struct tile *t)
{
    t->a = w->a + i * (w->form == IN_PLACE ? t->a_row : LINE);
    t->c = w->c + (w->turned ? i + j * t->ldc : i * t->ldc + j);
    tiles[w->form][PST_MIN(w->m - i, MR) - 1][nv - 1](t);
}

/* Each panel of B is packed when its turn comes, or read where it lies. */
static void panels(const struct block *w)
{
    const struct pst_gemm *g = w->g;
    const int64_t most = (w->m <= FEW ? NW : NV) * VEC;
    const bool plain = w->windows == NULL && !g->tb;

    for (int64_t j = 0; j < w->n; j += most) {
        const int64_t n = PST_MIN(w->n - j, most);
        const int64_t nv = (n + VEC - 1) / VEC;
        struct tile t = tile_of(w, n, nv);

        if (plain && w->m <= AGAIN * MR && n == nv * VEC) {
            t.b = w->b + j;
            t.ldb = g->ldb;
        } else {
            pack(w, j, n, nv, w->room);
            t.b = w->room;
        }
        for (int64_t i = 0; i < w->m; i += MR) {
            const bool fetch = i == 0 && plain && j + most < w->n;

            t.next = fetch ? w->b + j + most : t.b;
            t.ld_next = fetch ? g->ldb : 0;
            run_tile(w, i, j, nv, &t);
        }
    }
}

/* All columns, packed before: a panel stays while the rows go by, or, if it is
 * not deep, rows stay, so that C is written line by line. */
static void packed_panels(const struct block *w)
{
    const bool by_rows = w->k <= SHALLOW || w->form == IN_PLACE;
    const int64_t steps = by_rows ? (w->m + MR - 1) / MR : 1;
    const int64_t rows = steps == 1 ? w->m : MR;

    for (int64_t s = 0; s < steps; s++)
        for (int64_t j = 0; j < w->n; j += PANEL) {
            const int64_t n = PST_MIN(w->n - j, PANEL);
            const int64_t nv = (n + VEC - 1) / VEC;
            const int64_t end = PST_MIN(s * rows + rows, w->m);
            struct tile t = tile_of(w, n, nv);

            t.b = w->room + j * w->k;
            for (int64_t i = s * rows; i < end; i += MR) {
                const bool fetch = i + MR >= end && j + PANEL < w->n;

                t.next = fetch ? t.b + w->k * PANEL : t.b;
                t.ld_next = fetch ? PANEL : 0;
                run_tile(w, i, j, nv, &t);
            }
        }
}

/* The panels that packed_panels reads. Of windows several together: then what
 * is read of a line is longer. */
static void pack_all(const struct block *w)
{
    const bool several = w->windows != NULL && !w->g->tb;
    const int64_t step = several ? 4 * PANEL : PANEL;

    for (int64_t j = 0; j < w->n; j += step) {
        const int64_t n = PST_MIN(w->n - j, step);
        const int64_t last = n % PANEL, most = n - last;

        if (most > 0)
            pack(w, j, most, NV, w->room + j * w->k);
        if (last > 0)
            pack(w, j + most, last, (last + VEC - 1) / VEC,
                 w->room + (j + most) * w->k);
    }
}

/* Parts of n of at most `most`, all alike but the last; whole grains. */
static int64_t part_of(int64_t n, int64_t most, int64_t grain)
{
    const int64_t parts = PST_MAX((n + most - 1) / most, 1);

    return ((n + parts - 1) / parts + grain - 1) / grain * grain;
}

/* Columns w->j ..., w->n of them. */
static void columns(struct block *w, const float *a, const float *b, float *c,
                    float *room, bool whole)
{
    const struct pst_gemm *g = w->g;
    const int64_t kc = part_of(g->k, KC, 8);
    const int64_t mc = w->form == IN_PLACE ? g->m : part_of(g->m, MC, MR);

    for (w->p = 0; w->p < g->k; w->p += kc) {
        const int64_t p = w->p;

        w->k = PST_MIN(g->k - p, kc);
        w->beta = p == 0 ? (float)g->beta : 1.0f;
        if (b != NULL)
            w->b = g->tb ? b + w->j * g->ldb + p : b + p * g->ldb + w->j;
        if (whole)
            pack_all(w);
        for (int64_t i = 0; i < g->m; i += mc) {
            w->m = PST_MIN(g->m - i, mc);
            w->a = a + (g->ta ? p * g->lda + i : i * g->lda + p);
            w->c = w->turned ? c + i + w->j * g->ldc : c + i * g->ldc + w->j;
            if (w->form != IN_PLACE) {
                if (w->j == 0 || g->m > mc || g->k > kc) /* not there yet */
                    pack_a(g->ta, w->m, w->k, w->a, g->lda, room);
                w->a = room;
            }
            if (whole)
                packed_panels(w);
            else
                panels(w);
        }
    }
}

/*
 * B is packed once for all blocks of A if there are several, as many columns
 * at a time as stay in the second cache; windows are always, since more of a
 * line is read then. One panel reads A once.
 */
static void run(const struct pst_gemm *g, const float *a, const float *b,
                const struct pst_windows *windows, float *c, bool turned,
                float *room)
{
    const int64_t kc = part_of(g->k, KC, 8);
    const bool once = g->n <= OFTEN * PANEL && !g->ta;
    const bool again = g->m > MC || (kc <= SHALLOW && g->m > AGAIN * MR);
    const bool whole = g->n > PANEL && (again || (windows != NULL && !g->tb));
    const int64_t most =
        whole ? PST_PACKED_B / PST_MAX(kc, 1) / PANEL * PANEL : g->n;
    const int64_t nc = whole ? part_of(g->n, most, PANEL) : g->n;
    struct block w = {.g = g,
                      .windows = windows,
                      .form = once && (whole || g->n <= PANEL) ? IN_PLACE
                              : g->ta                          ? COLS
                                                               : ROWS,
                      .turned = turned,
                      .side = room + MC * LINE + VEC};

    w.room = w.side + PST_PACKED_NR * LINE + VEC;
    for (w.j = 0; w.j < g->n; w.j += nc) {
        w.n = PST_MIN(g->n - w.j, nc);
        columns(&w, a, b, c, room, whole);
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

    if (PST_SIMD(pst_simd_dots_likes)(g))
        PST_SIMD(pst_simd_dots)(g, a, b, c);
    else if (g->ta && g->n <= AGAIN * MR && g->n < g->m)
        run(&swapped, b, a, NULL, c, true, room);
    else
        run(g, a, b, NULL, c, false, room);
}

void PST_SIMD(pst_simd_gemm_windows)(const struct pst_gemm *g, const float *a,
                                     const struct pst_windows *b, float *c,
                                     float *room)
{
    run(g, a, NULL, b, c, false, room);
}
