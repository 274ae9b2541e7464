// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/functional/overlap.h"

#include "stages/base/alloc.h"

#include <stdlib.h>

#define TAG      PST_TAG_GRAPH
#define MAX_SPAN ((int64_t)1 << 35) /* maximum bits of a bitmap: 4 GiB */

/* Dimensions with size > 1 and stride > 0, by stride, the smallest first. */
struct strided_dims {
    unsigned rank;
    struct move {
        int64_t size, stride;
    } at[PST_MAX_RANK];
};

static int compare_moves(const void *a, const void *b)
{
    const struct move *x = a, *y = b;

    return (x->stride > y->stride) - (x->stride < y->stride);
}

static struct strided_dims moves_of(const struct pst_meta *meta)
{
    struct strided_dims ret = {0};

    for (unsigned d = 0; d < meta->rank; d++)
        if (meta->size[d] != 1)
            ret.at[ret.rank++] = (struct move){meta->size[d], meta->stride[d]};
    if (ret.rank > 1)
        qsort(ret.at, ret.rank, sizeof(ret.at[0]), compare_moves);
    return ret;
}

/* Returns the number of elements from first to last, gaps included. */
static int64_t span_of(const struct pst_meta *meta)
{
    return (int64_t)(pst_meta_span(meta) / pst_dtype_size(meta->dtype));
}

/* Calls fn with the offset of each element until it returns true. */
typedef bool (*element_fn)(void *ctx, int64_t offset);

static bool any_element(const struct pst_meta *meta, int64_t offset,
                        element_fn fn, void *ctx)
{
    int64_t index[PST_MAX_RANK] = {0};
    int64_t at = offset;

    if (pst_meta_numel(meta) == 0)
        return false;
    for (;;) {
        unsigned d = meta->rank;

        if (fn(ctx, at))
            return true;
        while (d > 0 && index[d - 1] == meta->size[d - 1] - 1) {
            d--;
            at -= index[d] * meta->stride[d];
            index[d] = 0;
        }
        if (d == 0)
            return false;
        index[d - 1]++;
        at += meta->stride[d - 1];
    }
}

struct bitmap {
    uint64_t *words;
    int64_t begin, end; /* the range of elements */
};

static size_t words_of(const struct bitmap *map)
{
    return (size_t)(map->end - map->begin) / 64 + 1;
}

static enum pst_status bitmap_init(struct bitmap *map, int64_t begin,
                                   int64_t end, struct pst_diag *diag)
{
    *map = (struct bitmap){NULL, begin, end};
    if (end - begin > MAX_SPAN)
        return pst_diag_set(diag, PST_E_TENSOR_INVALID,
                            "views that share %lld elements are too large to "
                            "be compared",
                            (long long)(end - begin));
    map->words = pst_calloc(TAG, words_of(map), sizeof(uint64_t));
    return map->words != NULL
               ? PST_OK
               : pst_diag_nomem(diag, words_of(map) * sizeof(uint64_t));
}

static bool bitmap_has(const struct bitmap *map, int64_t offset)
{
    const int64_t i = offset - map->begin;

    return offset >= map->begin && offset < map->end &&
           (map->words[i / 64] >> (i % 64) & 1) != 0;
}

static void bitmap_set(struct bitmap *map, int64_t offset)
{
    const int64_t i = offset - map->begin;

    if (offset >= map->begin && offset < map->end)
        map->words[i / 64] |= (uint64_t)1 << (i % 64);
}

/* Sets bit i + by for every set bit i. */
static void bitmap_repeat(struct bitmap *map, int64_t by)
{
    const size_t words = (size_t)(by / 64);
    const unsigned bits = (unsigned)(by % 64);

    for (size_t i = words_of(map); i-- > words;) {
        uint64_t x = map->words[i - words] << bits;

        if (bits > 0 && i > words)
            x |= map->words[i - words - 1] >> (64 - bits);
        map->words[i] |= x;
    }
}

/* Returns how many indices of dimension d, from 0 on, are at most `reach`
 * elements from index 0. */
static int64_t indices_of(const struct pst_meta *meta, unsigned d,
                          int64_t reach)
{
    const int64_t stride = meta->stride[d];

    return stride > 0 ? PST_MIN(meta->size[d], reach / stride + 1) : 1;
}

/*
 * Sets the bits of all elements without visiting each: for every dimension, the
 * bits of its first k indices, shifted by m <= k indices, are those of the next
 * m.
 */
static void bitmap_add_sets(struct bitmap *map, const struct pst_window *w)
{
    const int64_t reach = map->end - map->begin;

    bitmap_set(map, w->offset);
    for (unsigned d = 0; d < w->meta->rank; d++) {
        const int64_t n = indices_of(w->meta, d, reach);

        for (int64_t k = 1, m; k < n; k += m) {
            m = PST_MIN(k, n - k);
            bitmap_repeat(map, m * w->meta->stride[d]);
        }
    }
}

/* Returns how many words bitmap_add_sets reads, at most. */
static int64_t work_of_sets(const struct pst_meta *meta, int64_t reach)
{
    int64_t times = 1;

    for (unsigned d = 0; d < meta->rank; d++)
        for (int64_t k = 1; k < indices_of(meta, d, reach); k *= 2)
            times++;
    return times * (reach / 64 + 1);
}

static bool set_bit(void *ctx, int64_t offset)
{
    bitmap_set(ctx, offset);
    return false;
}

/* Sets the bits of the window's elements up to the map's end; map->begin is at
 * most the offset. Elements are visited one by one only if they are few. */
static void bitmap_add(struct bitmap *map, const struct pst_window *w)
{
    if (pst_meta_numel(w->meta) > work_of_sets(w->meta, map->end - map->begin))
        bitmap_add_sets(map, w);
    else
        (void)any_element(w->meta, w->offset, set_bit, map);
}

/* Sets the bit; stops if it was already set. */
static bool bitmap_set_new(void *ctx, int64_t offset)
{
    const bool is_set = bitmap_has(ctx, offset);

    bitmap_set(ctx, offset);
    return is_set;
}

enum pst_status pst_window_overlaps_itself(const struct pst_meta *meta,
                                           bool *ret, struct pst_diag *diag)
{
    const struct strided_dims moves = moves_of(meta);
    const int64_t span = span_of(meta);
    int64_t reach = 0;
    bool nested = true;
    struct bitmap map;
    enum pst_status status;

    *ret = false;
    if (pst_meta_numel(meta) == 0)
        return PST_OK;
    for (unsigned d = 0; d < moves.rank; d++) {
        nested = nested && moves.at[d].stride > reach;
        reach += (moves.at[d].size - 1) * moves.at[d].stride;
    }
    if (nested)
        return PST_OK;
    if (pst_meta_numel(meta) > span) { /* two indices have the same element */
        *ret = true;
        return PST_OK;
    }
    status = bitmap_init(&map, 0, span, diag);
    if (status != PST_OK)
        return status;
    *ret = any_element(meta, 0, bitmap_set_new, &map);
    pst_free(map.words);
    return PST_OK;
}

/* Converts a window to bytes by adding a last dimension of one element. False
 * if that is too many dimensions. */
static bool in_bytes(const struct pst_window *w, struct pst_meta *meta,
                     struct pst_window *ret)
{
    const int64_t item = (int64_t)pst_dtype_size(w->meta->dtype);

    if (w->meta->rank == PST_MAX_RANK)
        return false;
    *meta = *w->meta;
    meta->dtype = PST_U8;
    for (unsigned d = 0; d < meta->rank; d++)
        meta->stride[d] *= item;
    meta->size[meta->rank] = item;
    meta->stride[meta->rank++] = 1;
    *ret = (struct pst_window){meta, w->offset * item};
    return true;
}

static enum pst_status overlap_in_bytes(const struct pst_window *a,
                                        const struct pst_window *b, bool *ret,
                                        struct pst_diag *diag)
{
    const int64_t x = (int64_t)pst_dtype_size(a->meta->dtype);
    const int64_t y = (int64_t)pst_dtype_size(b->meta->dtype);
    struct pst_meta metas[2];
    struct pst_window u, v;

    *ret = false;
    if (pst_meta_numel(a->meta) == 0 || pst_meta_numel(b->meta) == 0 ||
        a->offset * x >= (b->offset + span_of(b->meta)) * y ||
        b->offset * y >= (a->offset + span_of(a->meta)) * x)
        return PST_OK;
    *ret = true; /* their bounds overlap */
    if (pst_meta_is_dense(a->meta) && pst_meta_is_dense(b->meta))
        return PST_OK;
    if (in_bytes(a, &metas[0], &u) && in_bytes(b, &metas[1], &v))
        return pst_windows_overlap(&u, &v, ret, diag);
    return PST_OK; /* not compared: assumed to overlap */
}

/* Makes the bitmaps of two windows, of the range [begin, end); the caller frees
 * their words. */
static enum pst_status make_bitmaps(const struct pst_window *a,
                                    const struct pst_window *b, int64_t begin,
                                    int64_t end, struct bitmap ret[2],
                                    struct pst_diag *diag)
{
    enum pst_status status = bitmap_init(&ret[0], begin, end, diag);

    ret[1].words = NULL;
    if (status == PST_OK)
        status = bitmap_init(&ret[1], begin, end, diag);
    if (status != PST_OK) {
        pst_free(ret[0].words);
        return status;
    }
    bitmap_add(&ret[0], a);
    bitmap_add(&ret[1], b);
    return PST_OK;
}

/* True if a bit is set in both maps; if `lacks`, true if a bit is set in b but
 * not in a. */
static bool bitmaps_overlap(const struct bitmap *a, const struct bitmap *b,
                            bool lacks)
{
    const uint64_t flip = lacks ? UINT64_MAX : 0;

    for (size_t i = 0; i < words_of(a); i++)
        if (((a->words[i] ^ flip) & b->words[i]) != 0)
            return true;
    return false;
}

int64_t pst_windows_work(const struct pst_window *a, const struct pst_window *b)
{
    const int64_t reach = PST_MAX(span_of(a->meta), span_of(b->meta));

    if (pst_meta_is_dense(a->meta) && pst_meta_is_dense(b->meta))
        return 1;
    return PST_MIN(work_of_sets(a->meta, reach), pst_meta_numel(a->meta)) +
           PST_MIN(work_of_sets(b->meta, reach), pst_meta_numel(b->meta)) +
           reach / 64 + 1;
}

enum pst_status pst_windows_overlap(const struct pst_window *a,
                                    const struct pst_window *b, bool *ret,
                                    struct pst_diag *diag)
{
    const int64_t end =
        PST_MIN(a->offset + span_of(a->meta), b->offset + span_of(b->meta));
    struct bitmap maps[2];
    enum pst_status status;

    *ret = false;
    if (pst_dtype_size(a->meta->dtype) != pst_dtype_size(b->meta->dtype))
        return overlap_in_bytes(a, b, ret, diag);
    if (PST_MAX(a->offset, b->offset) >= end || pst_meta_numel(a->meta) == 0 ||
        pst_meta_numel(b->meta) == 0)
        return PST_OK;
    if (pst_windows_same(a, b) ||
        (pst_meta_is_dense(a->meta) && pst_meta_is_dense(b->meta))) {
        *ret = true;
        return PST_OK;
    }
    /* From `end` on, one of the two has no elements. */
    status = make_bitmaps(a, b, PST_MIN(a->offset, b->offset), end, maps, diag);
    if (status != PST_OK)
        return status;
    *ret = bitmaps_overlap(&maps[0], &maps[1], false);
    pst_free(maps[0].words);
    pst_free(maps[1].words);
    return PST_OK;
}

enum pst_status pst_window_covers(const struct pst_window *a,
                                  const struct pst_window *b, bool *ret,
                                  struct pst_diag *diag)
{
    const int64_t end = a->offset + span_of(a->meta);
    struct pst_meta metas[2];
    struct bitmap maps[2];
    struct pst_window u, v;
    enum pst_status status;

    *ret = pst_meta_numel(b->meta) == 0;
    if (*ret)
        return PST_OK;
    if (pst_dtype_size(a->meta->dtype) != pst_dtype_size(b->meta->dtype))
        return in_bytes(a, &metas[0], &u) && in_bytes(b, &metas[1], &v)
                   ? pst_window_covers(&u, &v, ret, diag)
                   : PST_OK;
    if (b->offset < a->offset || b->offset + span_of(b->meta) > end)
        return PST_OK;
    *ret = pst_meta_is_dense(a->meta);
    if (*ret)
        return PST_OK;
    status = make_bitmaps(a, b, a->offset, end, maps, diag);
    if (status != PST_OK)
        return status;
    *ret = !bitmaps_overlap(&maps[0], &maps[1], true);
    pst_free(maps[0].words);
    pst_free(maps[1].words);
    return PST_OK;
}

bool pst_windows_same(const struct pst_window *a, const struct pst_window *b)
{
    unsigned i = 0, j = 0;

    if (a->offset != b->offset ||
        pst_dtype_size(a->meta->dtype) != pst_dtype_size(b->meta->dtype))
        return false;
    for (;; i++, j++) {
        while (i < a->meta->rank && a->meta->size[i] == 1)
            i++;
        while (j < b->meta->rank && b->meta->size[j] == 1)
            j++;
        if (i == a->meta->rank || j == b->meta->rank)
            return i == a->meta->rank && j == b->meta->rank;
        if (a->meta->size[i] != b->meta->size[j] ||
            a->meta->stride[i] != b->meta->stride[j])
            return false;
    }
}
