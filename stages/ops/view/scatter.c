// SPDX-License-Identifier: Apache-2.0
/* Adds a tensor to a window whose elements may overlap. The bits are those of
 * adding element by element in row-major order. */
#include "stages/ops/pointwise/nd.h"
#include "stages/ops/view/view.h"

struct job {
    struct pst_nd nd; /* operands: 0 the window, 1 the addend */
    int shared;       /* dimension divided among threads; -1: one adds all */
    bool wide;        /* f64, else f32 */
    char *dst;
    const char *src;
};

/* --- order ---------------------------------------------------------------- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* True if elements with different indices in dimension d never overlap: shorter
 * strides do not reach the next index, and longer strides step over the whole
 * dimension. */
static bool stands_alone(const struct pst_nd *nd, unsigned d)
{
    const int64_t *stride = nd->stride[0];
    int64_t reach = 0, steps = 0;

    for (unsigned k = 0; k < nd->rank; k++)
        if (stride[k] < stride[d])
            reach += stride[k] * (nd->size[k] - 1);
        else if (k != d)
            steps = common_divisor(stride[k], steps);
    if (stride[d] <= reach)
        return false;
    reach += stride[d] * (nd->size[d] - 1);
    return steps == 0 || steps > reach;
}

static void append_dim(struct pst_nd *to, const struct pst_nd *nd, unsigned d)
{
    to->size[to->rank] = nd->size[d];
    for (unsigned k = 0; k < nd->n; k++)
        to->stride[k][to->rank] = nd->stride[k][d];
    to->rank++;
}

/* Exchanges the last two dimensions and reverses the old last one. Sums keep
 * their order: of two overlapping elements, the one with the larger index in
 * one dimension has the smaller index in the other. */
static void swap_last(struct job *j, int64_t size)
{
    struct pst_nd *nd = &j->nd;
    const unsigned last = nd->rank - 1;
    const int64_t n = nd->size[last];

    nd->size[last] = nd->size[last - 1];
    nd->size[last - 1] = n;
    for (unsigned k = 0; k < 2; k++) {
        const int64_t stride = nd->stride[k][last];

        nd->stride[k][last] = nd->stride[k][last - 1];
        nd->stride[k][last - 1] = -stride;
    }
    j->dst -= (n - 1) * nd->stride[0][last - 1] * size;
    j->src -= (n - 1) * nd->stride[1][last - 1] * size;
}

/* Orders the dimensions. Those in which nothing overlaps may come in any order:
 * a contiguous one becomes the last, the others come first. The overlapping
 * dimensions keep their order, except that of two such dimensions the longer
 * one becomes the last. */
static void arrange_dims(struct job *j, const struct pst_nd *nd, int64_t size)
{
    bool alone[PST_MAX_RANK];
    struct pst_nd *to = &j->nd;
    unsigned meet = 0;
    int row = -1;

    *to = (struct pst_nd){.n = nd->n, .numel = nd->numel};
    for (unsigned d = 0; d < nd->rank; d++) {
        alone[d] = stands_alone(nd, d);
        meet += !alone[d];
        if (alone[d] && nd->stride[0][d] == 1)
            row = (int)d;
    }
    for (unsigned d = 0; d < nd->rank; d++)
        if (alone[d] && (int)d != row)
            append_dim(to, nd, d);
    for (unsigned d = 0; d < nd->rank; d++)
        if (!alone[d])
            append_dim(to, nd, d);
    if (row >= 0)
        append_dim(to, nd, (unsigned)row);
    else if (meet == 2 && to->size[to->rank - 1] < to->size[to->rank - 2] &&
             to->stride[0][to->rank - 1] > 0 && to->stride[0][to->rank - 2] > 0)
        swap_last(j, size);
    j->shared = row >= 0 ? (int)to->rank - 1 : -1;
    for (unsigned d = 0; d < to->rank - meet - (row >= 0); d++)
        if (j->shared < 0 || to->size[d] > to->size[j->shared])
            j->shared = (int)d;
}

/* --- sums ----------------------------------------------------------------- */

#define ROW(name, type)                                                        \
    static void name(void *ctx, const struct pst_nd *nd,                       \
                     const int64_t *offset, int64_t n)                         \
    {                                                                          \
        const struct job *j = ctx;                                             \
        const int64_t to = nd->stride[0][nd->rank - 1];                        \
        const int64_t from = nd->stride[1][nd->rank - 1];                      \
        type *y = (type *)(void *)j->dst + offset[0];                          \
        const type *x = (const type *)(const void *)j->src + offset[1];        \
                                                                               \
        if (to == 1 && from == 1)                                              \
            for (int64_t i = 0; i < n; i++)                                    \
                y[i] += x[i];                                                  \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                y[i * to] += x[i * from];                                      \
    }
ROW(row_f32, float)
ROW(row_f64, double)

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    struct job j = *(const struct job *)ctx;
    const int64_t size = j.wide ? 8 : 4;
    struct pst_nd *nd = &j.nd;
    const int d = j.shared;

    if (d < 0 && part > 0)
        return;
    if (d >= 0) {
        int64_t begin, end;

        pst_pool_share(nd->size[d], nd->stride[0][d] == 1 ? 16 : 1, part, parts,
                       &begin, &end);
        nd->numel = nd->numel / nd->size[d] * (end - begin);
        nd->size[d] = end - begin;
        j.dst += begin * nd->stride[0][d] * size;
        j.src += begin * nd->stride[1][d] * size;
    }
    pst_nd_range(nd, 0, nd->numel, j.wide ? row_f64 : row_f32, &j);
}

void pst_view_add(struct pst_pool *pool, const struct pst_meta *from,
                  const void *src, const struct pst_meta *window, void *dst)
{
    const bool wide = window->dtype == PST_F64;
    struct job j = {.wide = wide, .dst = dst, .src = src};
    struct pst_nd nd;

    pst_nd_init(&nd, 2, (const struct pst_meta *[]){window, from});
    if (nd.numel == 0)
        return;
    arrange_dims(&j, &nd, wide ? 8 : 4);
    pst_pool_run(pst_pool_if(pool, nd.numel >= PST_ND_SERIAL), run_part, &j);
}
