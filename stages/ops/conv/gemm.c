// SPDX-License-Identifier: Apache-2.0
/*
 * Convolutions as products. The windows of a range of positions of y become
 * the columns of a matrix (K, tile), K = I / groups * window; then
 *     y = w col,    col(x) += w^T y,    w += y col^T
 * for each image and group. A tile is small enough for the cache.
 */
#include "stages/ops/conv/conv.h"

#include "stages/ops/matmul/gemm.h"

#include <string.h>

#define TILE_FLOATS 131072 /* of a column matrix: 512 KiB */
#define TILE_LEAST  256    /* columns, for products of a good shape */

struct job {
    const struct pst_conv *c;
    float *scratch;
    int64_t m, k; /* rows of a group's y and of its columns */
    int64_t p, tile, tiles;
    int64_t in;  /* elements of one channel of x */
    bool direct; /* x is its own column matrix */
};

static int64_t tile_of(const struct pst_conv *c, int64_t k)
{
    const int64_t p = pst_conv_volume(c->out);
    const int64_t tile = PST_MAX(TILE_FLOATS / k, TILE_LEAST);

    return PST_MIN(tile, p);
}

static bool is_direct(const struct pst_conv *c)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        if (c->k[d] != 1 || c->stride[d] != 1 || c->pad[d] != 0)
            return false;
    return true;
}

static struct job job_of(const struct pst_conv *c, float *scratch)
{
    struct job j = {.c = c,
                    .scratch = scratch,
                    .m = c->co / c->groups,
                    .k = c->ci / c->groups * pst_conv_volume(c->k),
                    .p = pst_conv_volume(c->out),
                    .in = pst_conv_volume(c->in),
                    .direct = is_direct(c)};

    j.tile = tile_of(c, j.k);
    j.tiles = (j.p + j.tile - 1) / j.tile;
    return j;
}

size_t pst_conv_gemm_scratch(const struct pst_conv *c, unsigned threads)
{
    const struct job j = job_of(c, NULL);

    return j.direct ? 0 : (size_t)(j.k * j.tile) * sizeof(float) * threads;
}

static float *columns_of(const struct job *j, unsigned part)
{
    return j->scratch + (int64_t)part * j->k * j->tile;
}

static void product(const struct pst_gemm *g, const float *a, const float *b,
                    float *c)
{
    if (pst_gemm_likes_dnnl(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_f32_dnnl(g, a, b, c);
    else
        pst_gemm_f32(g, a, b, c);
}

/* --- columns ------------------------------------------------------------ */

/* Positions [*a, *b) of a line whose window element reads inside of x, cut to
 * [begin, end): q = o * stride + first. */
static void inside(int64_t first, int64_t stride, int64_t n, int64_t begin,
                   int64_t end, int64_t *a, int64_t *b)
{
    const int64_t low = first < 0 ? (-first + stride - 1) / stride : 0;
    const int64_t high = n - first <= 0 ? 0 : (n - first - 1) / stride + 1;

    *a = PST_MIN(PST_MAX(begin, low), end);
    *b = PST_MAX(PST_MIN(end, high), *a);
}

/* One row of the column matrix, columns p0..p1-1, from (or added to) a channel
 * of x. The row's window element is (k0, k1, k2). */
struct row {
    int64_t first[PST_CONV_DIMS]; /* k * dil - pad */
};

static struct row row_of(const struct pst_conv *c, int64_t element)
{
    struct row r;
    int64_t k[PST_CONV_DIMS];

    k[2] = element % c->k[2];
    k[1] = element / c->k[2] % c->k[1];
    k[0] = element / c->k[2] / c->k[1];
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        r.first[d] = k[d] * c->dil[d] - c->pad[d];
    return r;
}

/* Line of x that line `line` of y reads; NULL in the padding. */
static const float *line_of(const struct pst_conv *c, const struct row *r,
                            const float *x, int64_t line)
{
    const int64_t q0 = line / c->out[1] * c->stride[0] + r->first[0];
    const int64_t q1 = line % c->out[1] * c->stride[1] + r->first[1];

    if (q0 < 0 || q0 >= c->in[0] || q1 < 0 || q1 >= c->in[1])
        return NULL;
    return x + (q0 * c->in[1] + q1) * c->in[2];
}

static void gather_row(const struct pst_conv *c, const struct row *r,
                       const float *x, int64_t p0, int64_t p1, float *to)
{
    const int64_t width = c->out[2], stride = c->stride[2];

    while (p0 < p1) {
        const int64_t begin = p0 % width;
        const int64_t end = PST_MIN(width, begin + (p1 - p0));
        const float *from = line_of(c, r, x, p0 / width);
        int64_t a = end, b = end;

        if (from != NULL)
            inside(r->first[2], stride, c->in[2], begin, end, &a, &b);
        for (int64_t o = begin; o < a; o++)
            to[o - begin] = 0.0f;
        if (a < b && stride == 1)
            memcpy(to + (a - begin), from + a + r->first[2],
                   (size_t)(b - a) * sizeof(float));
        for (int64_t o = a; o < b && stride != 1; o++)
            to[o - begin] = from[o * stride + r->first[2]];
        for (int64_t o = b; o < end; o++)
            to[o - begin] = 0.0f;
        to += end - begin;
        p0 += end - begin;
    }
}

static void scatter_row(const struct pst_conv *c, const struct row *r, float *x,
                        int64_t p0, int64_t p1, const float *from)
{
    const int64_t width = c->out[2], stride = c->stride[2];

    while (p0 < p1) {
        const int64_t begin = p0 % width;
        const int64_t end = PST_MIN(width, begin + (p1 - p0));
        float *to = (float *)line_of(c, r, x, p0 / width);
        int64_t a = end, b = end;

        if (to != NULL)
            inside(r->first[2], stride, c->in[2], begin, end, &a, &b);
        for (int64_t o = a; o < b; o++)
            to[o * stride + r->first[2]] += from[o - begin];
        from += end - begin;
        p0 += end - begin;
    }
}

/* Rows k0..k1-1 of the column matrix of positions p0..p1-1, from the channels
 * of a group; rows have p1 - p0 elements. */
static void gather(const struct job *j, const float *x, int64_t k0, int64_t k1,
                   int64_t p0, int64_t p1, float *to)
{
    const int64_t window = pst_conv_volume(j->c->k);

    for (int64_t k = k0; k < k1; k++, to += p1 - p0) {
        const struct row r = row_of(j->c, k % window);

        gather_row(j->c, &r, x + k / window * j->in, p0, p1, to);
    }
}

static void scatter(const struct job *j, float *x, int64_t p0, int64_t p1,
                    const float *from)
{
    const int64_t window = pst_conv_volume(j->c->k);

    for (int64_t k = 0; k < j->k; k++, from += p1 - p0) {
        const struct row r = row_of(j->c, k % window);

        scatter_row(j->c, &r, x + k / window * j->in, p0, p1, from);
    }
}

/* Channels of group g of image n. */
static float *x_of(const struct job *j, int64_t n, int64_t g)
{
    const struct pst_conv *c = j->c;

    return (float *)c->x->data + (n * c->ci + g * (c->ci / c->groups)) * j->in;
}

static float *y_of(const struct job *j, int64_t n, int64_t g)
{
    return (float *)j->c->y->data + (n * j->c->co + g * j->m) * j->p;
}

static float *w_of(const struct job *j, int64_t g)
{
    return (float *)j->c->w->data + g * j->m * j->k;
}

/* Channels of `n` elements that are added to start from bias or zero. */
static void start(const struct pst_conv *c, float *to, int64_t first,
                  int64_t channels, int64_t n, int64_t ld)
{
    const float *bias = c->bias == NULL ? NULL : c->bias->data;

    for (int64_t i = 0; i < channels; i++, to += ld) {
        const float b = bias == NULL ? 0.0f : bias[first + i];

        for (int64_t p = 0; p < n; p++)
            to[p] = c->accumulate ? to[p] + b : b;
    }
}

/* --- y ------------------------------------------------------------------ */

static void tile_y(const struct job *j, int64_t item, float *columns)
{
    const struct pst_conv *c = j->c;
    const int64_t p0 = item % j->tiles * j->tile;
    const int64_t n = PST_MIN(j->tile, j->p - p0);
    const int64_t g = item / j->tiles % c->groups;
    const int64_t image = item / j->tiles / c->groups;
    const bool onto = c->accumulate || c->bias != NULL;
    const struct pst_gemm product_of = {.m = j->m,
                                        .n = n,
                                        .k = j->k,
                                        .lda = j->k,
                                        .ldb = j->direct ? j->p : n,
                                        .ldc = j->p,
                                        .alpha = 1.0,
                                        .beta = onto ? 1.0 : 0.0};
    const float *x = x_of(j, image, g);
    float *y = y_of(j, image, g) + p0;

    if (!j->direct)
        gather(j, x, 0, j->k, p0, p0 + n, columns);
    if (c->bias != NULL)
        start(c, y, g * j->m, j->m, n, j->p);
    product(&product_of, w_of(j, g), j->direct ? x + p0 : columns, y);
}

static void part_y(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t a, b;

    pst_pool_share(j->c->n * j->c->groups * j->tiles, 1, part, parts, &a, &b);
    for (; a < b; a++)
        tile_y(j, a, columns_of(j, part));
}

void pst_conv_gemm_y(const struct pst_conv *c, struct pst_pool *pool,
                     float *scratch)
{
    struct job j = job_of(c, scratch);

    pst_pool_run(pool, part_y, &j);
}

/* --- x ------------------------------------------------------------------ */

static void group_x(const struct job *j, int64_t item, float *columns)
{
    const struct pst_conv *c = j->c;
    const int64_t channels = c->ci / c->groups;
    const int64_t image = item / c->groups, g = item % c->groups;
    float *x = x_of(j, image, g);
    const bool onto = c->accumulate || c->bias != NULL;

    if (!j->direct || c->bias != NULL)
        start(c, x, g * channels, channels, j->in, j->in);
    for (int64_t p0 = 0; p0 < j->p; p0 += j->tile) {
        const int64_t n = PST_MIN(j->tile, j->p - p0);
        const struct pst_gemm product_of = {.ta = true,
                                            .m = j->k,
                                            .n = n,
                                            .k = j->m,
                                            .lda = j->k,
                                            .ldb = j->p,
                                            .ldc = j->direct ? j->p : n,
                                            .alpha = 1.0,
                                            .beta =
                                                j->direct && onto ? 1.0 : 0.0};

        product(&product_of, w_of(j, g), y_of(j, image, g) + p0,
                j->direct ? x + p0 : columns);
        if (!j->direct)
            scatter(j, x, p0, p0 + n, columns);
    }
}

static void part_x(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t a, b;

    pst_pool_share(j->c->n * j->c->groups, 1, part, parts, &a, &b);
    for (; a < b; a++)
        group_x(j, a, columns_of(j, part));
}

void pst_conv_gemm_x(const struct pst_conv *c, struct pst_pool *pool,
                     float *scratch)
{
    struct job j = job_of(c, scratch);

    pst_pool_run(pool, part_x, &j);
}

/* --- w ------------------------------------------------------------------ */

/* Rows k0..k1-1 of the columns make columns k0..k1-1 of w. */
static void group_w(const struct job *j, int64_t g, int64_t k0, int64_t k1,
                    float *columns)
{
    const struct pst_conv *c = j->c;
    float *w = w_of(j, g);

    for (int64_t item = 0; item < c->n * j->tiles; item++) {
        const int64_t p0 = item % j->tiles * j->tile;
        const int64_t n = PST_MIN(j->tile, j->p - p0);
        const int64_t image = item / j->tiles;
        const struct pst_gemm product_of = {
            .tb = true,
            .m = j->m,
            .n = k1 - k0,
            .k = n,
            .lda = j->p,
            .ldb = j->direct ? j->p : n,
            .ldc = j->k,
            .alpha = 1.0,
            .beta = c->accumulate || item > 0 ? 1.0 : 0.0};
        const float *x = x_of(j, image, g);

        if (!j->direct)
            gather(j, x, k0, k1, p0, p0 + n, columns);
        product(&product_of, y_of(j, image, g) + p0,
                j->direct ? x + k0 * j->p + p0 : columns, w + k0);
    }
}

static void part_w(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t a, b;

    pst_pool_share(j->k, 1, part, parts, &a, &b);
    for (int64_t g = 0; g < j->c->groups && a < b; g++)
        group_w(j, g, a, b, columns_of(j, part));
}

void pst_conv_gemm_w(const struct pst_conv *c, struct pst_pool *pool,
                     float *scratch)
{
    struct job j = job_of(c, scratch);

    if (c->n == 0 && !c->accumulate)
        memset(c->w->data, 0, (size_t)(c->groups * j.m * j.k) * sizeof(float));
    else
        pst_pool_run(pool, part_w, &j);
}
