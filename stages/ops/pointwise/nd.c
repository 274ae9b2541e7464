// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pointwise/nd.h"

/* The parts of threads begin at multiples of so many elements, which are a
 * multiple of every vector length and of a cache line. */
#define GRAIN 1024

/* True if a dimension of `size` elements with these strides can be merged into
 * the last dimension of nd: the rows of each operand follow each other without
 * gaps. */
static bool can_merge(const struct pst_nd *nd, int64_t size,
                      const int64_t *stride)
{
    for (unsigned k = 0; k < nd->n; k++)
        if (nd->stride[k][nd->rank - 1] != stride[k] * size)
            return false;
    return true;
}

/* Returns the stride, in an operand with meta m, along dimension d of the
 * result. */
static int64_t stride_of(const struct pst_meta *m, unsigned rank, unsigned d)
{
    const unsigned missing = rank - (m != NULL ? m->rank : 0);

    if (m == NULL || d < missing || m->size[d - missing] == 1)
        return 0;
    return m->stride[d - missing];
}

void pst_nd_init(struct pst_nd *nd, unsigned n,
                 const struct pst_meta *const *metas)
{
    const struct pst_meta *shape = metas[0];
    int64_t stride[PST_ND_MAX];

    nd->n = n;
    nd->rank = 0;
    nd->numel = 1;
    for (unsigned d = 0; d < shape->rank; d++) {
        const int64_t size = shape->size[d];

        nd->numel *= size;
        if (size == 1)
            continue;
        for (unsigned k = 0; k < n; k++)
            stride[k] = stride_of(metas[k], shape->rank, d);
        if (nd->rank > 0 && can_merge(nd, size, stride))
            nd->size[nd->rank - 1] *= size;
        else
            nd->size[nd->rank++] = size;
        for (unsigned k = 0; k < n; k++)
            nd->stride[k][nd->rank - 1] = stride[k];
    }
    if (nd->rank == 0) {
        nd->rank = 1;
        nd->size[0] = 1;
        for (unsigned k = 0; k < n; k++)
            nd->stride[k][0] = metas[k] != NULL;
    }
}

void pst_nd_range(const struct pst_nd *nd, int64_t begin, int64_t end,
                  pst_nd_fn fn, void *ctx)
{
    const unsigned last = nd->rank - 1;
    const int64_t row = nd->size[last];
    int64_t index[PST_MAX_RANK], offset[PST_ND_MAX] = {0};
    int64_t rest = begin;

    if (begin >= end)
        return;
    if (nd->rank == 1) {
        for (unsigned k = 0; k < nd->n; k++)
            offset[k] = begin * nd->stride[k][0];
        fn(ctx, nd, offset, end - begin);
        return;
    }
    for (unsigned d = nd->rank; d-- > 0;) {
        index[d] = rest % nd->size[d];
        rest /= nd->size[d];
        for (unsigned k = 0; k < nd->n; k++)
            offset[k] += index[d] * nd->stride[k][d];
    }
    while (begin < end) {
        const int64_t n = PST_MIN(row - index[last], end - begin);

        fn(ctx, nd, offset, n);
        begin += n;
        /* Moves to the start of the next row. */
        for (unsigned k = 0; k < nd->n; k++)
            offset[k] -= index[last] * nd->stride[k][last];
        index[last] = 0;
        for (unsigned d = last; d-- > 0;) {
            for (unsigned k = 0; k < nd->n; k++)
                offset[k] += nd->stride[k][d];
            if (++index[d] < nd->size[d])
                break;
            for (unsigned k = 0; k < nd->n; k++)
                offset[k] -= nd->size[d] * nd->stride[k][d];
            index[d] = 0;
        }
    }
}

struct shared {
    const struct pst_nd *nd;
    pst_nd_fn fn;
    void *ctx;
};

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct shared *s = ctx;
    int64_t begin, end;

    pst_pool_share(s->nd->numel, GRAIN, part, parts, &begin, &end);
    pst_nd_range(s->nd, begin, end, s->fn, s->ctx);
}

void pst_nd_run(const struct pst_nd *nd, struct pst_pool *pool, pst_nd_fn fn,
                void *ctx)
{
    struct shared s = {nd, fn, ctx};

    if (nd->numel < PST_ND_SERIAL || pst_pool_threads(pool) == 1)
        pst_nd_range(nd, 0, nd->numel, fn, ctx);
    else
        pst_pool_run(pool, run_part, &s);
}

/* --- gathering of short rows ---------------------------------------------- */

/* Gathers n elements from two dimensions. */
#define GATHER(type)                                                           \
    static void gather_##type(const struct pst_nd *nd, unsigned k,             \
                              int64_t begin, int64_t n, const type *x,         \
                              type *to)                                        \
    {                                                                          \
        const int64_t size = nd->size[1];                                      \
        const int64_t down = nd->stride[k][0], right = nd->stride[k][1];       \
        int64_t at = begin % size;                                             \
                                                                               \
        x += begin / size * down;                                              \
        for (int64_t done = 0; done < n; x += down, at = 0) {                  \
            const int64_t end = PST_MIN(size, at + n - done);                  \
                                                                               \
            for (; at < end; at++)                                             \
                to[done++] = x[at * right];                                    \
        }                                                                      \
    }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)

static void gather_rows(const struct pst_nd *nd, unsigned k, int64_t begin,
                        int64_t n, const void *x, size_t size, void *to)
{
    switch (size) {
    case 1:
        gather_uint8_t(nd, k, begin, n, x, to);
        break;
    case 2:
        gather_uint16_t(nd, k, begin, n, x, to);
        break;
    case 4:
        gather_uint32_t(nd, k, begin, n, x, to);
        break;
    default:
        gather_uint64_t(nd, k, begin, n, x, to);
    }
}

/* Gathers plane by plane; a plane is the last two dimensions. */
void pst_nd_gather(const struct pst_nd *nd, unsigned k, int64_t begin,
                   int64_t n, const void *x, size_t size, void *to)
{
    struct pst_nd plane = {.n = nd->n, .rank = 2};
    int64_t whole;

    plane.size[1] = nd->size[nd->rank - 1];
    plane.stride[k][1] = nd->stride[k][nd->rank - 1];
    plane.size[0] = nd->rank > 1 ? nd->size[nd->rank - 2] : 1;
    plane.stride[k][0] = nd->rank > 1 ? nd->stride[k][nd->rank - 2] : 0;
    whole = plane.size[0] * plane.size[1];
    for (int64_t done = 0, m; done < n; done += m) {
        int64_t rest = (begin + done) / whole, offset = 0;
        const int64_t at = (begin + done) % whole;

        m = PST_MIN(n - done, whole - at);
        for (unsigned d = nd->rank - PST_MIN(nd->rank, 2); d-- > 0;) {
            offset += rest % nd->size[d] * nd->stride[k][d];
            rest /= nd->size[d];
        }
        gather_rows(&plane, k, at, m, (const char *)x + offset * (int64_t)size,
                    size, (char *)to + done * (int64_t)size);
    }
}
