// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_WINDOWS_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_WINDOWS_H
/* Packs panels of GEMM's second operand from the windows of an image, for
 * gemm.c: see struct pst_windows. */
#include "stages/ops/cpu/simd/tile.h"
#include "stages/ops/matmul/packed.h"

#include <string.h>

/* Positions as runs: run i is len[i] positions that are consecutive in a copy,
 * from offset at[i] on. */
struct pst_runs {
    /* reach: floats of the copy up to the end of the last run */
    int64_t n, reach;
    int64_t at[PST_PACKED_KC], len[PST_PACKED_KC];
};

/* Finds the runs of positions [first, first + n), n at most PST_PACKED_KC. */
static inline void find_runs(const struct pst_windows *w, int64_t first,
                             int64_t n, struct pst_runs *ret)
{
    int64_t col = first % w->count[2], line = first / w->count[2];
    int64_t slab = line / w->count[1], image = slab / w->count[0];

    line %= w->count[1];
    slab %= w->count[0];
    ret->n = ret->reach = 0;
    ret->at[0] = 0;
    while (n > 0) {
        const int64_t len = PST_MIN(w->count[2] - col, n);
        const int64_t at =
            image * w->step[0] + slab * w->step[1] + line * w->step[2] + col;
        const bool joins =
            ret->n > 0 && ret->at[ret->n - 1] + ret->len[ret->n - 1] == at;

        if (joins) {
            ret->len[ret->n - 1] += len;
        } else {
            ret->at[ret->n] = at;
            ret->len[ret->n++] = len;
        }
        ret->reach = PST_MAX(ret->reach, at + len + PST_TILE_VEC);
        n -= len;
        col = 0;
        if (++line == w->count[1]) {
            line = 0;
            if (++slab == w->count[0]) {
                slab = 0;
                image++;
            }
        }
    }
}

/* The runs divided into copies of at most a vector: len[i] floats from offset
 * from[i], counted from the first run, to offset to[i]. If whole vectors are
 * copied, the next copy overwrites what follows the len[i] floats. */
struct pst_window_copies {
    int64_t n;
    int32_t from[2 * PST_PACKED_KC], to[2 * PST_PACKED_KC];
    int32_t len[2 * PST_PACKED_KC];
};

static inline void find_copies(const struct pst_runs *r, int64_t width,
                               int64_t step, struct pst_window_copies *ret)
{
    int64_t to = 0;

    ret->n = 0;
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t j = 0, len; j < r->len[i]; j += len, to += len) {
            len = PST_MIN(PST_MIN(PST_TILE_VEC, r->len[i] - j),
                          width - to % width);
            ret->from[ret->n] = (int32_t)(r->at[i] - r->at[0] + j);
            ret->len[ret->n] = (int32_t)len;
            ret->to[ret->n++] = (int32_t)(to + to / width * step);
        }
}

/* Copies all runs of the copy at `from`. whole: up to a vector after the last
 * run may be overwritten; then vectors are copied, unless that would read
 * beyond `end`. */
static PST_ALWAYS_INLINE void copy_runs(const struct pst_runs *r,
                                        const struct pst_window_copies *c,
                                        const float *from, const float *end,
                                        bool whole, float *to)
{
    const bool inside = end - from >= r->reach;

    from += r->at[0];
    if (!whole || !inside) {
        for (int64_t i = 0; i < c->n; i++)
            memcpy(to + c->to[i], from + c->from[i],
                   (size_t)c->len[i] * sizeof(*to));
        return;
    }
    for (int64_t i = 0; i < c->n; i++)
        *(pst_vec *)(to + c->to[i]) = *(const pst_vec *)(from + c->from[i]);
}

/* Packs taps [p, p + k) at positions [j, j + n) into consecutive panels with
 * rows of `width`. Elements after a row's end are overwritten by the next
 * row. */
static inline void pst_windows_pack(const struct pst_windows *w, int64_t p,
                                    int64_t k, int64_t j, int64_t n,
                                    int64_t width, float *to)
{
    struct pst_runs r;
    struct pst_window_copies c;

    if (n % width != 0)
        memset(to + n / width * width * k, 0,
               (size_t)(k * width) * sizeof(*to));
    find_runs(w, w->first + j, n, &r);
    find_copies(&r, width, (k - 1) * width, &c);
    for (int64_t q = 0; q < k; q++)
        copy_runs(&r, &c, w->copy + w->taps[p + q], w->end, q + 1 < k,
                  to + q * width);
}

/* True if the taps [j, j + n) are equally far apart and the positions are one
 * run, so that the panel is a transposed piece of the copy. */
static inline bool lies_turned(const struct pst_windows *w,
                               const struct pst_runs *r, int64_t j, int64_t n)
{
    for (int64_t q = 2; q < n; q++)
        if (w->taps[j + q] - w->taps[j + q - 1] != w->taps[j + 1] - w->taps[j])
            return false;
    return r->n == 1;
}

/* Packs positions [p, p + k) at taps [j, j + n) in rows of `width`; side has
 * capacity for the taps before they are transposed. */
static inline void pst_windows_pack_taps(const struct pst_windows *w, int64_t p,
                                         int64_t k, int64_t j, int64_t n,
                                         int64_t width, float *side, float *to)
{
    struct pst_runs r;
    struct pst_window_copies c;

    if (n < width)
        memset(to, 0, (size_t)(k * width) * sizeof(*to));
    find_runs(w, w->first + p, k, &r);
    if (lies_turned(w, &r, j, n)) {
        pst_tile_transpose(n, k, w->copy + w->taps[j] + r.at[0],
                           n > 1 ? w->taps[j + 1] - w->taps[j] : 0, to, width);
        return;
    }
    find_copies(&r, PST_PACKED_LINE, 0, &c);
    for (int64_t q = 0; q < n; q++)
        copy_runs(&r, &c, w->copy + w->taps[j + q], w->end, true,
                  side + q * PST_PACKED_LINE);
    pst_tile_transpose(n, k, side, PST_PACKED_LINE, to, width);
}

#endif
