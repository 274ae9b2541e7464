// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/ops/cpu/simd/gemm_tile.h"
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/cpu/simd/windows.h"

#include <string.h>

#define MC    PST_PACKED_MC
#define PANEL (NV * VEC)
/* With at most this many panels of B, packing A does not pay. */
#define OFTEN    3
#define SHALLOW  64 /* k up to which C costs more time than the operands */
#define STRAIGHT 32 /* k up to which C is always written line by line */
/* Tiles of rows of A up to which B is read in place, if it is not transposed.
 */
#if defined(__AVX512F__)
#define AGAIN 3
#else
#define AGAIN 1
#endif

/* Returns the rows of a tile if m rows are divided evenly: only the last tile
 * has fewer, and not many fewer. */
static int64_t tile_rows_of(int64_t m)
{
    const int64_t tiles = PST_MAX((m + MR - 1) / MR, 1);

    return (m + tiles - 1) / tiles;
}

/* Packs rows [0, m) of A, k deep, for tiles of mr rows. A transposed A is
 * packed by columns, in whole vectors of which only mr numbers count: the next
 * column overwrites the rest. */
static void pack_a(bool trans, int64_t m, int64_t mr, int64_t k, const float *a,
                   int64_t lda, float *to)
{
    for (int64_t i = 0; !trans && i < m; i++)
        memcpy(to + i * LINE, a + i * lda, (size_t)k * sizeof(*to));
    for (int64_t p = 0; trans && p < k; p++, a += lda) {
        int64_t i = 0;

        for (; i + VEC <= m; i += mr)
            *(pst_vec *)(to + i * LINE + p * mr) = *(const pst_vec *)(a + i);
        for (; i < m; i += mr)
            for (int64_t j = i; j < m && j < i + mr; j++)
                to[i * LINE + p * mr + j - i] = a[j];
    }
}

/* Packs m rows of A by columns, for tiles of mr rows, from weights that are not
 * in this order: w->weights has their offsets. */
static void pack_a_by_offset(const struct pst_windows *w, int64_t first,
                             int64_t m, int64_t mr, int64_t k, const float *a,
                             float *to)
{
    const int64_t *weights = w->weights + first, apart = w->row_stride;

    for (int64_t i = 0, n; i < m; i += n, a += n * apart, to += n * LINE) {
        n = PST_MIN(mr, m - i);
        for (int64_t p = 0, run; p < k; p += run) {
            for (run = 1; p + run < k; run++)
                if (weights[p + run] != weights[p] + run)
                    break;
            pst_tile_transpose(n, run, a + weights[p], apart, to + p * mr, mr);
        }
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

/* Packs columns [0, n) of B, k deep, into rows of nv vectors, with zeros after
 * them. */
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

/* A block of the matmul: C (m, n) = A B + beta C for m rows of A and columns
 * [j, j + n) of B, both at depths [p, p + k). */
struct block {
    const struct pst_gemm *g;
    const struct pst_windows *windows; /* NULL: b is used */
    const float *flat;  /* B, if its rows are contiguous and tiles read it in
                           place; or NULL */
    const int64_t *own; /* offsets of the rows of `flat` if it is a plain
                         * matrix; NULL: they are windows->taps */
    int64_t m, mr, n, k, j, p; /* mr: rows of a tile */
    const float *a, *b;
    enum form form;
    float *c;
    bool turned;
    float beta;
    float *scratch; /* packed panels of B */
    float *side;    /* scratch for panels while they are transposed */
};

/* Packs columns [j, j + n) of the block into rows of nv vectors. */
static void pack_panel(const struct block *w, int64_t j, int64_t n, int64_t nv,
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
                         .a_col = w->form == COLS ? w->mr
                                  : g->ta         ? g->lda
                                                  : 1,
                         .ldb = nv * VEC,
                         .ldc = g->ldc,
                         .n = n,
                         .turned = w->turned,
                         .alpha = (float)g->alpha,
                         .beta = w->beta};
}

/* Computes rows [i, i + mr) of the block, columns from j on. */
static void run_tile(const struct block *w, int64_t i, int64_t j, int64_t nv,
                     struct tile *t)
{
    const int64_t mr = PST_MIN(w->m - i, w->mr);

    t->a = w->a + i * (w->form == IN_PLACE ? t->a_row : LINE);
    t->c = w->c + (w->turned ? i + j * t->ldc : i * t->ldc + j);
    if (t->packed != NULL)
        packing_tiles[w->form][mr - 1](t);
    else
        tiles[w->form][mr - 1][nv - 1](t);
}

/* Multiplies the block by the panel of B at column j. The first tile of rows
 * reads the panel in place and packs it for the other tiles. */
static void panel_by_taps(const struct block *w, int64_t j)
{
    struct tile t = tile_of(w, PANEL, NV);

    t.b = w->flat + w->j + j + (w->own == NULL ? 0 : w->p * w->g->ldb);
    t.taps = w->own == NULL ? w->windows->taps + w->p : w->own;
    t.packed = w->scratch;
    for (int64_t i = 0; i < w->m; i += w->mr) {
        run_tile(w, i, j, NV, &t);
        t.b = t.next = w->scratch;
        t.packed = NULL;
    }
}

/* Multiplies by all panels of B; each is packed just before it is used, or read
 * in place. */
static void multiply_panels(const struct block *w)
{
    const struct pst_gemm *g = w->g;
    const int64_t most = (w->m <= FEW ? NW : NV) * VEC;
    const bool plain = w->windows == NULL && !g->tb;

    for (int64_t j = 0; j < w->n; j += most) {
        const int64_t n = PST_MIN(w->n - j, most);
        const int64_t nv = (n + VEC - 1) / VEC;
        struct tile t = tile_of(w, n, nv);

        if (w->flat != NULL && w->m > FEW && n == PANEL) {
            panel_by_taps(w, j);
            continue;
        }
        if (plain && w->m <= AGAIN * MR && n == nv * VEC) {
            t.b = w->b + j;
            t.ldb = g->ldb;
        } else {
            pack_panel(w, j, n, nv, w->scratch);
            t.b = w->scratch;
        }
        for (int64_t i = 0; i < w->m; i += w->mr) {
            const bool fetch = i == 0 && plain && j + most < w->n;

            t.next = fetch ? w->b + j + most : t.b;
            t.ld_next = fetch ? g->ldb : 0;
            run_tile(w, i, j, nv, &t);
        }
    }
}

/* Multiplies by all columns of B, which pack_all() has packed. The outer loop
 * is over panels, so that a panel stays in the cache for all rows. If k is
 * small or A is read in place, it is over rows, so that C is written line by
 * line. */
static void packed_panels(const struct block *w)
{
    const bool by_rows = w->k <= SHALLOW || w->form == IN_PLACE;
    const int64_t steps = by_rows ? (w->m + w->mr - 1) / w->mr : 1;
    const int64_t rows = steps == 1 ? w->m : w->mr;

    for (int64_t s = 0; s < steps; s++)
        for (int64_t j = 0; j < w->n; j += PANEL) {
            const int64_t n = PST_MIN(w->n - j, PANEL);
            const int64_t nv = (n + VEC - 1) / VEC;
            const int64_t end = PST_MIN(s * rows + rows, w->m);
            struct tile t = tile_of(w, n, nv);

            t.b = w->scratch + j * w->k;
            for (int64_t i = s * rows; i < end; i += w->mr) {
                const bool fetch = i + w->mr >= end && j + PANEL < w->n;

                t.next = fetch ? t.b + w->k * PANEL : t.b;
                t.ld_next = fetch ? PANEL : 0;
                run_tile(w, i, j, nv, &t);
            }
        }
}

/* Packs the panels that packed_panels() reads. Panels of windows are packed
 * four at a time, so that longer pieces of a line are read. */
static void pack_all(const struct block *w)
{
    const bool several = w->windows != NULL && !w->g->tb;
    const int64_t step = several ? 4 * PANEL : PANEL;

    for (int64_t j = 0; j < w->n; j += step) {
        const int64_t n = PST_MIN(w->n - j, step);
        const int64_t last = n % PANEL, most = n - last;

        if (most > 0)
            pack_panel(w, j, most, NV, w->scratch + j * w->k);
        if (last > 0)
            pack_panel(w, j + most, last, (last + VEC - 1) / VEC,
                       w->scratch + (j + most) * w->k);
    }
}

/* Packs the block's rows of A, from row i on. */
static void pack_weights(const struct block *w, int64_t i, const float *a,
                         float *to)
{
    const struct pst_gemm *g = w->g;

    if (w->windows != NULL && w->windows->weights != NULL)
        pack_a_by_offset(w->windows, w->p, w->m, w->mr, w->k,
                         a + i * w->windows->row_stride, to);
    else
        pack_a(g->ta, w->m, w->mr, w->k, w->a, g->lda, to);
}

/* Divides n into equal parts, of which only the last may be smaller, and
 * returns their size: a multiple of grain, and at most `most` if `most` is a
 * multiple of grain. */
static int64_t part_of(int64_t n, int64_t most, int64_t grain)
{
    const int64_t parts = PST_MAX((n + most - 1) / most, 1);

    return ((n + parts - 1) / parts + grain - 1) / grain * grain;
}

/* Computes columns [w->j, w->j + w->n) of C. whole: packs all of these columns
 * of B before it multiplies by the first. */
static void compute_columns(struct block *w, const float *a, const float *b,
                            float *c, float *scratch, bool whole)
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
            w->mr = tile_rows_of(w->m);
            w->a = a + (g->ta ? p * g->lda + i : i * g->lda + p);
            w->c = w->turned ? c + i + w->j * g->ldc : c + i * g->ldc + w->j;
            if (w->form != IN_PLACE) {
                if (w->j == 0 || g->m > mc || g->k > kc) /* not packed yet */
                    pack_weights(w, i, a, scratch);
                w->a = scratch;
            }
            if (whole)
                packed_panels(w);
            else
                multiply_panels(w);
        }
    }
}

/* True if the n positions are contiguous in w->copy. */
static bool is_flat(const struct pst_windows *w, int64_t n)
{
    const int64_t slab = w->count[2] * w->count[1], image = slab * w->count[0];

    return (w->count[1] == 1 || w->step[2] == w->count[2]) &&
           (w->count[0] == 1 || w->step[1] == slab) &&
           (w->step[0] == image || w->first % image + n <= image);
}

/* Sets w->flat, and for a plain matrix w->own, if tiles should read B in place
 * and pack it. own: memory for the offsets of a block's rows. */
static void find_taps(struct block *w, const float *b, int64_t own[KC])
{
    const struct pst_gemm *g = w->g;
    const struct pst_windows *windows = w->windows;

    if (g->tb || g->n < PANEL || g->m > MC ||
        (g->k <= STRAIGHT && g->m > AGAIN * MR))
        return;
    if (windows == NULL && g->m > AGAIN * MR) {
        for (int64_t p = 0; p < KC; p++)
            own[p] = p * g->ldb;
        w->own = own;
        w->flat = b;
    } else if (windows != NULL && is_flat(windows, g->n)) {
        const int64_t image =
            windows->count[2] * windows->count[1] * windows->count[0];

        w->flat = windows->copy + windows->first / image * windows->step[0] +
                  windows->first % image;
    }
}

/*
 * Computes C. If A has several blocks, B is packed once for all of them, as
 * many columns at a time as stay in the L2 cache. Windows are always packed
 * like this, since longer pieces of a line are read then. If there is one
 * panel, A is read only once, so it is not packed.
 */
static void run_gemm(const struct pst_gemm *g, const float *a, const float *b,
                     const struct pst_windows *windows, float *c, bool turned,
                     float *scratch)
{
    const int64_t kc = part_of(g->k, KC, 8);
    const bool once = g->n <= OFTEN * PANEL && !g->ta;
    const bool again = g->m > MC || (kc <= SHALLOW && g->m > AGAIN * MR);
    int64_t own[KC];
    struct block w = {.g = g,
                      .windows = windows,
                      .turned = turned,
                      .side = scratch + MC * LINE + VEC};

    find_taps(&w, b, own);

    const bool whole = g->n > PANEL && w.flat == NULL &&
                       (again || (windows != NULL && !g->tb));
    const int64_t most =
        whole ? PST_PACKED_B / PST_MAX(kc, 1) / PANEL * PANEL : g->n;
    const int64_t nc = whole ? part_of(g->n, most, PANEL) : g->n;

    w.form = once && (whole || g->n <= PANEL) ? IN_PLACE : g->ta ? COLS : ROWS;
    w.scratch = w.side + PST_PACKED_NR * LINE + VEC;
    for (w.j = 0; w.j < g->n; w.j += nc) {
        w.n = PST_MIN(g->n - w.j, nc);
        compute_columns(&w, a, b, c, scratch, whole);
    }
}

/* If A is transposed and C has few columns, C is computed transposed: A is then
 * the second operand, which is read in place and row by row. */
void PST_SIMD(pst_simd_gemm)(const struct pst_gemm *g, const float *a,
                             const float *b, float *c, float *scratch)
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

    if (PST_SIMD(pst_simd_dots_preferred)(g))
        PST_SIMD(pst_simd_dots)(g, a, b, c);
    else if (g->ta && g->n <= AGAIN * MR && g->n < g->m)
        run_gemm(&swapped, b, a, NULL, c, true, scratch);
    else
        run_gemm(g, a, b, NULL, c, false, scratch);
}

void PST_SIMD(pst_simd_gemm_windows)(const struct pst_gemm *g, const float *a,
                                     const struct pst_windows *b, float *c,
                                     float *scratch)
{
    run_gemm(g, a, NULL, b, c, false, scratch);
}
