// SPDX-License-Identifier: Apache-2.0
/* gather and scatter, in blocks of indices along one dimension. */
#include "stages/ops/index/along.h"

#include "stages/ops/index/places.h"

#include <string.h>

struct along {
    const struct pst_call *c;
    const struct pst_operand *index;
    struct pst_nd nd;   /* operands: 0 list, 1 index, 2 table (offset for index
                         * 0) */
    char *list, *table; /* elements of one dtype */
    enum pst_dtype dtype;
    int64_t size, stride; /* size and stride of the table along the dimension */
    enum pst_places_mode mode;
    pst_places_fn fn;
    bool reads;
};

/* Moves a row whose elements all have the same index and are contiguous in list
 * and table. Returns false if the row is not such a row, or if its index is out
 * of range. */
static bool move_line(const struct along *a, const struct pst_nd *nd,
                      const int64_t *offset, int64_t n)
{
    const unsigned last = nd->rank - 1;
    const size_t size = pst_dtype_size(a->dtype);
    char *list = a->list + offset[0] * (int64_t)size, *table;
    int64_t at;

    if (nd->stride[1][last] != 0 || nd->stride[0][last] != 1 ||
        nd->stride[2][last] != 1 ||
        (a->mode == PST_PLACES_ADD && a->dtype != PST_F32) ||
        !pst_places_load(a->c, a->index, offset[1], 0, 1, a->size, a->stride,
                         false, NULL, &at))
        return false;
    table = a->table + (offset[2] + at) * (int64_t)size;
    if (a->mode == PST_PLACES_READ) {
        memcpy(list, table, (size_t)n * size);
    } else if (a->mode == PST_PLACES_WRITE) {
        memcpy(table, list, (size_t)n * size);
    } else {
        const float *restrict from = (const float *)(const void *)list;
        float *restrict to = (float *)(void *)table;

        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
    }
    return true;
}

static void move_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                     int64_t n)
{
    const struct along *a = ctx;
    const unsigned last = nd->rank - 1;
    const int64_t size = (int64_t)pst_dtype_size(a->dtype);
    const int64_t apart = nd->stride[0][last], step = nd->stride[1][last];
    const int64_t along = nd->stride[2][last];

    if (move_line(a, nd, offset, n))
        return;
    for (int64_t i = 0; i < n; i += PST_PLACES) {
        const int64_t m = PST_MIN(n - i, PST_PLACES);
        char *list = a->list + (offset[0] + i * apart) * size;
        char *table = a->table + (offset[2] + i * along) * size;
        int64_t at[PST_PLACES];

        if (pst_places_load(a->c, a->index, offset[1] + i * step, step, m,
                            a->size, a->stride, false, NULL, at)) {
            a->fn(a->dtype, table, at, along, list, apart, m);
            continue;
        }
        for (int64_t k = 0; k < m; k++) {
            char *one = list + k * apart * size;

            if (at[k] >= 0)
                a->fn(a->dtype, table + k * along * size, &at[k], 0, one, 0, 1);
            else if (a->reads)
                memset(one, 0, (size_t)size);
        }
    }
}

/* Returns m with the sizes of index and with stride 0 in dimension dim. */
static struct pst_meta with_sizes_of(const struct pst_meta *m,
                                     const struct pst_meta *index, int dim)
{
    struct pst_meta ret = *index;

    for (unsigned d = 0; d < ret.rank; d++)
        ret.stride[d] = (int)d == dim || d >= m->rank ? 0 : m->stride[d];
    return ret;
}

/* Pool function: moves a share of the elements. They are divided along the
 * largest dimension along which no two elements have the same address; if there
 * is none, the first part does everything. */
static void run_part(void *ctx, unsigned part, unsigned parts)
{
    struct along a = *(const struct along *)ctx;
    const int64_t size = (int64_t)pst_dtype_size(a.dtype);
    struct pst_nd *nd = &a.nd;
    struct pst_operand index = *a.index;
    int64_t begin, end;
    int best = -1;

    for (unsigned d = 0; d < nd->rank; d++)
        if ((a.reads || nd->stride[2][d] != 0) &&
            (best < 0 || nd->size[d] > nd->size[best]))
            best = (int)d;
    if (best >= 0) {
        pst_pool_share(nd->size[best], 1, part, parts, &begin, &end);
        nd->size[best] = end - begin;
        a.list += begin * nd->stride[0][best] * size;
        index.data =
            (char *)index.data + begin * nd->stride[1][best] *
                                     (int64_t)pst_dtype_size(index.meta->dtype);
        a.table += begin * nd->stride[2][best] * size;
        a.index = &index;
    } else if (part > 0) {
        return;
    }
    nd->numel = 1;
    for (unsigned d = 0; d < nd->rank; d++)
        nd->numel *= nd->size[d];
    pst_nd_range(nd, 0, nd->numel, move_row, &a);
}

void pst_along_run(const struct pst_call *c, enum pst_places_mode mode,
                   const struct pst_operand *table, int dim,
                   const struct pst_operand *index,
                   const struct pst_operand *list)
{
    const struct pst_meta at = with_sizes_of(table->meta, index->meta, dim);
    const struct pst_meta side = with_sizes_of(list->meta, index->meta, -1);
    const struct pst_meta *metas[3] = {&side, index->meta, &at};
    struct along a = {
        .c = c,
        .index = index,
        .list = list->data,
        .table = table->data,
        .dtype = table->meta->dtype,
        .size = table->meta->rank > 0 ? table->meta->size[dim] : 1,
        .stride = table->meta->rank > 0 ? table->meta->stride[dim] : 0,
        .mode = mode,
        .fn = pst_places_mover(table->meta->dtype, mode),
        .reads = mode == PST_PLACES_READ,
    };

    pst_nd_init(&a.nd, 3, metas);
    if (a.nd.numel == 0)
        return;
    pst_pool_run(pst_pool_if(c->pool, a.nd.numel >= PST_ND_SERIAL), run_part,
                 &a);
}
