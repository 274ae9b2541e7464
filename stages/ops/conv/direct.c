// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/direct.h"

#include "stages/base/host/cpu.h"
#include "stages/ops/conv/direct_plan.h"

#include <string.h>

/* Limits of pst_conv_direct_preferred(). A group has few channels if it has
 * fewer than FEW; for gradients of weights without oneDNN and with AVX-512,
 * also if it has up to SOME and a plane has at least LARGE positions. */
#define FEW        PST_CONV_FEW
#define SOME       8
#define LARGE      512
#define MAX_PHASES 64
#define MAX_COPY   (1 << 22) /* floats of the padded copy of a group */

/* --- results ------------------------------------------------------------ */

/* Iterates over the lines of the result in a strip, a range of positions. A
 * line is elements [at, at + n) of the strip and elements to, to + step, ... of
 * a plane of the result. */
struct lines {
    const struct pst_direct_job *j;
    const struct pst_direct_pass *p;
    /* spatial sizes of the plane: c->in if x is computed, else c->out */
    const int64_t *dst;
    int64_t at, n, to;
    /* positions in the strip where the next line begins, and the strip's end */
    int64_t next, end;
    int64_t col, l1, l0;
};

static struct lines lines_of(const struct pst_direct_job *j,
                             const struct pst_direct_pass *p,
                             const int64_t dst[PST_CONV_DIMS], int64_t begin,
                             int64_t n)
{
    const int64_t *size = j->copy.size;

    return (struct lines){.j = j,
                          .p = p,
                          .dst = dst,
                          .end = n,
                          .col = begin % size[2],
                          .l1 = begin / size[2] % size[1],
                          .l0 = begin / size[2] / size[1]};
}

/* Advances to the next line; false after the last one. */
static bool next_line(struct lines *l)
{
    const struct pst_direct_pass *p = l->p;
    const int64_t *size = l->j->copy.size;

    while (l->next < l->end) {
        const bool in = l->l1 < p->count[1] && l->l0 < p->count[0];

        l->at = l->next;
        l->n = PST_MIN(p->count[2] - l->col, l->end - l->next);
        l->to = ((p->first[0] + l->l0 * p->step[0]) * l->dst[1] + p->first[1] +
                 l->l1 * p->step[1]) *
                    l->dst[2] +
                p->first[2] + l->col * p->step[2];
        l->next += size[2] - l->col;
        l->col = 0;
        if (++l->l1 == size[1]) {
            l->l1 = 0;
            l->l0++;
        }
        if (in && l->n > 0)
            return true;
    }
    return false;
}

static void store_line(const float *restrict from, float *restrict to,
                       int64_t n, int64_t step, bool add)
{
    if (step == 1 && !add)
        memcpy(to, from, (size_t)n * sizeof(float));
    else if (step == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i * step] = add ? to[i * step] + from[i] : from[i];
}

/* Returns the plane (image, channel) of the result that belongs to row `row` of
 * the group; NULL if the group has no such channel. */
static float *plane_at(const struct pst_direct_job *j, int64_t image,
                       int64_t group, int64_t row)
{
    const bool of_x = j->fill == PST_CONV_X;
    float *to = of_x ? j->c->x->data : j->c->y->data;
    const int64_t channel = (image * j->c->groups + group) * j->out + row;

    if (row >= j->out)
        return NULL;
    return to + channel * pst_conv_volume(of_x ? j->c->in : j->c->out);
}

static void store(const struct pst_direct_job *j,
                  const struct pst_direct_pass *p, int64_t image, int64_t group,
                  int64_t block, int64_t begin, int64_t n, const float *strip)
{
    const struct pst_conv *c = j->c;

    for (int64_t r = 0; r < j->rows; r++, strip += j->strip) {
        float *to = plane_at(j, image, group, block * j->rows + r);
        struct lines l =
            lines_of(j, p, j->fill == PST_CONV_X ? c->in : c->out, begin, n);

        while (to != NULL && next_line(&l))
            store_line(strip + l.at, to + l.to, l.n, p->step[2], c->accumulate);
    }
}

/* True if the block's tiles can be computed in the result itself, without a
 * copy from the strip: one line per plane, and all rows of the block exist. */
static bool is_plain(const struct pst_direct_job *j,
                     const struct pst_direct_pass *p, int64_t block)
{
    return !j->c->accumulate && p->step[2] == 1 && p->count[1] == 1 &&
           p->count[0] == 1 && p->first[0] == 0 && p->first[1] == 0 &&
           p->first[2] == 0 && (block + 1) * j->rows <= j->out;
}

static void run_pass(const struct pst_direct_job *j,
                     const struct pst_direct_pass *p, int64_t image,
                     int64_t group, int64_t block,
                     const struct pst_direct_scratch *scratch)
{
    const int64_t length = pst_direct_length(j, p);
    const bool plain = is_plain(j, p, block);
    float bias[PST_CONV_ROWS] = {0};

    for (int64_t r = 0; r < j->rows; r++)
        if (j->c->bias != NULL && block * j->rows + r < j->out)
            bias[r] =
                ((const float *)
                     j->c->bias->data)[group * j->out + block * j->rows + r];
    pst_direct_pack(j, p, group, block, scratch->w);
    for (int64_t i = 0; i < length; i += j->strip) {
        struct pst_conv_tile tile = {.n = PST_MIN(j->strip, length - i),
                                     .taps = p->taps,
                                     .offset = p->offset_of,
                                     .x = scratch->copy + i,
                                     .rows = (int)j->rows,
                                     .w = scratch->w,
                                     .bias = bias,
                                     .y = scratch->strip,
                                     .ldy = j->strip};

        if (plain && tile.n == j->strip) {
            tile.y = plane_at(j, image, group, block * j->rows) + i;
            tile.ldy = length;
            j->loops->sums(&tile);
        } else {
            j->loops->sums(&tile);
            store(j, p, image, group, block, i, tile.n, scratch->strip);
        }
    }
}

static void part_sums(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_direct_job *j = ctx;
    const struct pst_conv *c = j->c;
    struct pst_direct_scratch scratch;
    int64_t a, b, passes, last = -1;

    pst_direct_scratch(j, part, &scratch);
    passes = pst_direct_passes(j, &scratch);
    pst_pool_share(c->n * c->groups * j->blocks, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t unit = a / j->blocks;
        const int64_t image = unit / c->groups, group = unit % c->groups;

        if (unit != last)
            pst_direct_fill(j, image, group, scratch.copy);
        last = unit;
        for (int64_t i = 0; i < passes; i++)
            run_pass(j, &scratch.passes[i], image, group, a % j->blocks,
                     &scratch);
    }
}

/* --- gradients of weights ----------------------------------------------- */

/* Copies n output gradients of a block, from position `begin` on, to the strip,
 * with zeros between the lines. */
static void copy_gradients(const struct pst_direct_job *j,
                           const struct pst_direct_pass *p, int64_t image,
                           int64_t group, int64_t block, int64_t begin,
                           int64_t n, float *strip)
{
    memset(strip, 0, PST_DIRECT_STRIP * sizeof(float));
    for (int64_t r = 0; r < j->rows; r++, strip += j->strip) {
        const float *from = plane_at(j, image, group, block * j->rows + r);
        struct lines l = lines_of(j, p, j->c->out, begin, n);

        while (from != NULL && next_line(&l))
            memcpy(strip + l.at, from + l.to, (size_t)l.n * sizeof(float));
    }
}

static void block_dots(const struct pst_direct_job *j,
                       const struct pst_direct_pass *p, int64_t image,
                       int64_t group, int64_t block, float *lanes,
                       const struct pst_direct_scratch *scratch)
{
    const int64_t length = pst_direct_length(j, p);

    for (int64_t i = 0; i < length; i += j->strip) {
        const struct pst_conv_tile tile = {.n = PST_MIN(j->strip, length - i),
                                           .taps = p->taps,
                                           .offset = p->offset_of,
                                           .x = scratch->copy + i,
                                           .rows = (int)j->rows,
                                           .y = scratch->strip,
                                           .ldy = j->strip,
                                           .lanes = lanes};

        copy_gradients(j, p, image, group, block, i, tile.n, scratch->strip);
        j->loops->dots(&tile);
    }
}

/* Adds the partial sums in the lanes to `sums` and clears the lanes. */
static void join_lanes(int64_t n, float *lanes, double *sums)
{
    for (int64_t s = 0; s < n; s++, lanes += PST_CONV_LANES)
        for (int64_t i = 0; i < PST_CONV_LANES; i++) {
            sums[s] += (double)lanes[i];
            lanes[i] = 0.0f;
        }
}

static void store_w(const struct pst_direct_job *j, int64_t taps, int64_t group,
                    int64_t block, const double *sums)
{
    for (int64_t r = 0; r < j->rows && block * j->rows + r < j->out; r++) {
        float *w = (float *)j->c->w->data +
                   (group * j->out + block * j->rows + r) * taps;

        for (int64_t t = 0; t < taps; t++) {
            const double sum = sums[t * j->rows + r];

            w[t] = (float)(j->c->accumulate ? (double)w[t] + sum : sum);
        }
    }
}

/* Computes the weight gradients of blocks [begin, end) of a group. */
static void group_dots(const struct pst_direct_job *j,
                       const struct pst_direct_pass *p, int64_t group,
                       int64_t begin, int64_t end,
                       const struct pst_direct_scratch *scratch)
{
    const int64_t each = p->taps * j->rows;
    const int64_t of_block = each * PST_CONV_LANES;

    memset(scratch->lanes, 0,
           (size_t)(of_block * (j->late ? end - begin : 1)) * sizeof(float));
    memset(scratch->sums, 0, (size_t)(each * (end - begin)) * sizeof(double));
    for (int64_t image = 0; image < j->c->n; image++) {
        pst_direct_fill(j, image, group, scratch->copy);
        for (int64_t block = begin; block < end; block++) {
            const int64_t b = block - begin;
            float *lanes = scratch->lanes + (j->late ? b * of_block : 0);

            block_dots(j, p, image, group, block, lanes, scratch);
            if (!j->late || image + 1 == j->c->n)
                join_lanes(each, lanes, scratch->sums + b * each);
        }
    }
    for (int64_t block = begin; block < end; block++)
        store_w(j, p->taps, group, block,
                scratch->sums + (block - begin) * each);
}

static void part_dots(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_direct_job *j = ctx;
    struct pst_direct_scratch scratch;
    int64_t a, b;

    pst_direct_scratch(j, part, &scratch);
    pst_direct_passes(j, &scratch);
    pst_pool_share(j->c->groups * j->blocks, 1, part, parts, &a, &b);
    while (a < b) {
        const int64_t begin = a % j->blocks;
        const int64_t end = PST_MIN(j->blocks, begin + b - a);

        group_dots(j, scratch.passes, a / j->blocks, begin, end, &scratch);
        a += end - begin;
    }
}

/* --- entry points ------------------------------------------------------- */

/* True if x or y has so few channels that a matmul would have a bad shape. For
 * the gradient of x only y's channels count, since the matmul has a row for
 * each window element. Weights are packed once per image, so there must be at
 * least as many positions as taps. */
bool pst_conv_direct_preferred(const struct pst_conv *c,
                               enum pst_conv_fill fill)
{
    const int64_t ci = c->ci / c->groups, co = c->co / c->groups;
    const int64_t of = fill == PST_CONV_X ? co : PST_MIN(ci, co);
    const int64_t taps = pst_conv_volume(c->k) * (fill == PST_CONV_X ? co : ci);
    const bool some =
        !PST_HAVE_DNNL && fill == PST_CONV_W && PST_MAX(ci, co) <= SOME &&
        pst_cpu_isa() == PST_ISA_AVX512 && pst_conv_volume(c->out) >= LARGE;
    struct pst_direct_job j;

    if (of >= (some ? SOME + 1 : FEW) || pst_conv_volume(c->k) == 1 ||
        pst_conv_volume(c->stride) > MAX_PHASES ||
        taps > pst_conv_volume(c->out))
        return false;
    j = pst_direct_job(c, fill);
    return j.copy.channels * pst_direct_plane(&j.copy) < MAX_COPY;
}

size_t pst_conv_direct_scratch(const struct pst_conv *c,
                               enum pst_conv_fill fill, unsigned threads)
{
    const struct pst_direct_job j = pst_direct_job(c, fill);
    struct pst_direct_scratch unused;

    return (size_t)pst_direct_scratch(&j, 0, &unused) * sizeof(float) * threads;
}

void pst_conv_direct_run(const struct pst_conv *c, enum pst_conv_fill fill,
                         struct pst_pool *pool, void *scratch,
                         const struct pst_conv_loops *loops)
{
    struct pst_direct_job j = pst_direct_job(c, fill);
    struct pst_direct_scratch unused;

    j.loops = loops;
    j.each = pst_direct_scratch(&j, 0, &unused);
    j.scratch = scratch;
    pst_pool_run(pool, fill == PST_CONV_W ? part_dots : part_sums, &j);
}
