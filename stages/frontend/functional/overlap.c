// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/functional/overlap.h"

#include "stages/base/alloc.h"

#include <stdlib.h>

#define TAG PST_TAG_GRAPH

/* Dimensions with size > 1 and stride > 0, by stride. */
struct moves {
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

static struct moves moves_of(const struct pst_meta *meta)
{
    struct moves ret = {0};

    for (unsigned d = 0; d < meta->rank; d++)
        if (meta->size[d] != 1)
            ret.at[ret.rank++] = (struct move){meta->size[d], meta->stride[d]};
    if (ret.rank > 1)
        qsort(ret.at, ret.rank, sizeof(ret.at[0]), compare_moves);
    return ret;
}

/* Elements from the first to the end of the last; 0 if there are none. */
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

static enum pst_status bitmap_init(struct bitmap *map, int64_t begin,
                                   int64_t end, struct pst_diag *diag)
{
    const size_t n = (size_t)(end - begin) / 64 + 1;

    *map = (struct bitmap){pst_calloc(TAG, n, sizeof(uint64_t)), begin, end};
    return map->words != NULL ? PST_OK
                              : pst_diag_nomem(diag, n * sizeof(uint64_t));
}

static bool bitmap_has(void *ctx, int64_t offset)
{
    const struct bitmap *map = ctx;
    const int64_t i = offset - map->begin;

    return offset >= map->begin && offset < map->end &&
           (map->words[i / 64] >> (i % 64) & 1) != 0;
}

static bool bitmap_lacks(void *ctx, int64_t offset)
{
    return !bitmap_has(ctx, offset);
}

/* Sets the bit; never stops. */
static bool bitmap_set(void *ctx, int64_t offset)
{
    struct bitmap *map = ctx;
    const int64_t i = offset - map->begin;

    if (offset >= map->begin && offset < map->end)
        map->words[i / 64] |= (uint64_t)1 << (i % 64);
    return false;
}

/* Sets the bit; stops if it was already set. */
static bool bitmap_set_new(void *ctx, int64_t offset)
{
    if (bitmap_has(ctx, offset))
        return true;
    return bitmap_set(ctx, offset);
}

enum pst_status pst_window_overlaps_itself(const struct pst_meta *meta,
                                           bool *ret, struct pst_diag *diag)
{
    const struct moves moves = moves_of(meta);
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
    if (pst_meta_numel(meta) > span) { /* more indices than elements */
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
    return PST_OK; /* undecided */
}

enum pst_status pst_windows_overlap(const struct pst_window *a,
                                    const struct pst_window *b, bool *ret,
                                    struct pst_diag *diag)
{
    const int64_t begin = PST_MAX(a->offset, b->offset);
    const int64_t end =
        PST_MIN(a->offset + span_of(a->meta), b->offset + span_of(b->meta));
    struct bitmap map;
    enum pst_status status;

    *ret = false;
    if (pst_dtype_size(a->meta->dtype) != pst_dtype_size(b->meta->dtype))
        return overlap_in_bytes(a, b, ret, diag);
    if (begin >= end || pst_meta_numel(a->meta) == 0 ||
        pst_meta_numel(b->meta) == 0)
        return PST_OK;
    if (pst_windows_same(a, b)) {
        *ret = true;
        return PST_OK;
    }
    status = bitmap_init(&map, begin, end, diag);
    if (status != PST_OK)
        return status;
    (void)any_element(a->meta, a->offset, bitmap_set, &map);
    *ret = any_element(b->meta, b->offset, bitmap_has, &map);
    pst_free(map.words);
    return PST_OK;
}

enum pst_status pst_window_covers(const struct pst_window *a,
                                  const struct pst_window *b, bool *ret,
                                  struct pst_diag *diag)
{
    struct pst_meta metas[2];
    struct pst_window u, v;
    struct bitmap map;
    enum pst_status status;

    *ret = pst_meta_numel(b->meta) == 0;
    if (*ret)
        return PST_OK;
    if (pst_dtype_size(a->meta->dtype) != pst_dtype_size(b->meta->dtype))
        return in_bytes(a, &metas[0], &u) && in_bytes(b, &metas[1], &v)
                   ? pst_window_covers(&u, &v, ret, diag)
                   : PST_OK;
    if (b->offset < a->offset ||
        b->offset + span_of(b->meta) > a->offset + span_of(a->meta))
        return PST_OK;
    *ret = pst_meta_is_dense(a->meta);
    if (*ret)
        return PST_OK;
    status = bitmap_init(&map, a->offset, a->offset + span_of(a->meta), diag);
    if (status != PST_OK)
        return status;
    (void)any_element(a->meta, a->offset, bitmap_set, &map);
    *ret = !any_element(b->meta, b->offset, bitmap_lacks, &map);
    pst_free(map.words);
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
