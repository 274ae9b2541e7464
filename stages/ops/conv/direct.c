// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/direct.h"

#include <string.h>

#define STRIP      2048 /* results at a time: whose taps stay in the cache */
#define SLACK      256  /* floats behind a copy that whole vectors may read */
#define FEW        8    /* channels */
#define MAX_PHASES 64
#define MAX_COPY   (1 << 22) /* floats */
#define ROOM       16 /* floats; parts of the scratch start at multiples */

/* The copy of a source (x, or y where x is filled) of one image and group:
 * (channels, phases..., size...). Element e of phase r along a dimension is
 * element e * split + r - lead of the source, or 0. */
struct copy {
    int64_t channels, from[PST_CONV_DIMS];
    int64_t split[PST_CONV_DIMS], lead[PST_CONV_DIMS], size[PST_CONV_DIMS];
};

/* Results that one list of taps makes: element j along a dimension, of
 * `count`, is element first + j * step of the result. */
struct pass {
    int64_t first[PST_CONV_DIMS], step[PST_CONV_DIMS], count[PST_CONV_DIMS];
    int64_t place[PST_CONV_DIMS]; /* X: in the copy for j = 0 and k = 0 */
    int64_t phase[PST_CONV_DIMS]; /* X: of k * dil */
    int64_t taps;
    const int64_t
        *offset_of; /* of each tap: place in the copy for position 0 */
    const int64_t *weight_of; /* and in a group's weights for row 0 */
};

struct job {
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    const struct pst_conv_loops *loops;
    struct copy copy;
    int64_t rows, out, blocks; /* of a tile, of a group, tiles of a group */
    int64_t strip;             /* positions of a tile */
    int64_t row_step;          /* between rows of a group's weights */
    int64_t passes;
    float *scratch;
    int64_t each; /* floats of a thread's scratch */
};

/* Parts of a thread's scratch. */
struct room {
    struct pass *passes;
    int64_t *taps; /* (2, taps of all passes) */
    float *copy, *w, *strip, *lanes;
    double *sums;
};

static int64_t whole(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain * grain;
}

/* First and last m >= 0 with 0 <= m * s + phase - pad < n. */
static void range_of(const struct pst_conv *c, unsigned d, int64_t phase,
                     int64_t *first, int64_t *last)
{
    const int64_t s = c->stride[d], high = c->in[d] - 1 + c->pad[d] - phase;

    *first = PST_MAX(c->pad[d] - phase + s - 1, 0) / s;
    *last = high < 0 ? -1 : high / s;
}

static void copy_of_x(const struct pst_conv *c, struct copy *ret)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        ret->from[d] = c->in[d];
        ret->split[d] = c->stride[d];
        ret->lead[d] = c->pad[d];
        ret->size[d] = c->out[d] + (c->k[d] - 1) * c->dil[d] / c->stride[d];
    }
}

static void copy_of_y(const struct pst_conv *c, struct copy *ret)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        int64_t low = INT64_MAX, high = -1;

        for (int64_t r = 0; r < c->stride[d]; r++) {
            int64_t first, last;

            range_of(c, d, r, &first, &last);
            low = PST_MIN(low, first);
            high = PST_MAX(high, last);
        }
        ret->from[d] = c->out[d];
        ret->split[d] = 1;
        ret->lead[d] = (c->k[d] - 1) * c->dil[d] / c->stride[d] - low;
        ret->size[d] = high + ret->lead[d] + 1;
    }
}

static int64_t plane_of(const struct copy *p)
{
    return pst_conv_volume(p->size) * pst_conv_volume(p->split);
}

static struct job job_of(const struct pst_conv *c, enum pst_conv_fill fill)
{
    const int64_t window = pst_conv_volume(c->k);
    struct job j = {.c = c, .fill = fill, .passes = 1};

    if (fill == PST_CONV_X) {
        copy_of_y(c, &j.copy);
        j.copy.channels = c->co / c->groups;
        j.out = c->ci / c->groups;
        j.row_step = window;
        j.passes = pst_conv_volume(c->stride);
    } else {
        copy_of_x(c, &j.copy);
        j.copy.channels = c->ci / c->groups;
        j.out = c->co / c->groups;
        j.row_step = j.copy.channels * window;
    }
    j.rows = j.out == 1 ? 1 : PST_CONV_ROWS;
    j.blocks = whole(j.out, j.rows) / j.rows;
    j.strip = STRIP / j.rows;
    return j;
}

/* Cuts a thread's scratch; returns its floats. */
static int64_t room_of(const struct job *j, unsigned part, struct room *ret)
{
    const int64_t taps = j->copy.channels * pst_conv_volume(j->c->k);
    const int64_t per = sizeof(int64_t) / sizeof(float);
    float *at = j->scratch == NULL ? NULL : j->scratch + part * j->each;
    int64_t n = 0;

#define TAKE(field, floats)                                                    \
    do {                                                                       \
        if (at != NULL)                                                        \
            ret->field = (void *)(at + n);                                     \
        n += whole(floats, ROOM);                                              \
    } while (0)
    TAKE(passes, j->passes * (int64_t)(sizeof(struct pass) / sizeof(float)));
    TAKE(taps, taps * 2 * per);
    TAKE(copy, j->copy.channels * plane_of(&j->copy) + SLACK);
    TAKE(strip, STRIP);
    if (j->fill == PST_CONV_W) {
        TAKE(lanes, taps * j->rows * PST_CONV_LANES);
        TAKE(sums, taps * j->rows * j->blocks * per);
    } else {
        TAKE(w, taps * j->rows);
    }
#undef TAKE
    return n;
}

size_t pst_conv_direct_scratch(const struct pst_conv *c,
                               enum pst_conv_fill fill, unsigned threads)
{
    const struct job j = job_of(c, fill);
    struct room unused;

    return (size_t)room_of(&j, 0, &unused) * sizeof(float) * threads;
}

/* --- copies ------------------------------------------------------------- */

/* One line: phase r of `from`, NULL in the padding. */
static void copy_line(const struct copy *p, int64_t r, const float *from,
                      float *to)
{
    const int64_t n = p->size[2], s = p->split[2], low = p->lead[2] - r;
    const int64_t high = p->from[2] + low;
    int64_t a = low <= 0 ? 0 : (low + s - 1) / s;
    int64_t b = high <= 0 ? 0 : (high + s - 1) / s;

    a = from == NULL ? n : PST_MIN(a, n);
    b = PST_MAX(PST_MIN(b, n), a);
    for (int64_t e = 0; e < a; e++)
        to[e] = 0.0f;
    if (s == 1 && a < b)
        memcpy(to + a, from + (a - low), (size_t)(b - a) * sizeof(float));
    else if (s == 2)
        for (int64_t e = a; e < b; e++)
            to[e] = from[e * 2 - low];
    else
        for (int64_t e = a; e < b; e++)
            to[e] = from[e * s - low];
    for (int64_t e = b; e < n; e++)
        to[e] = 0.0f;
}

/* A channel: `from` into all phases. */
static float *copy_channel(const struct copy *p, const float *from, float *to)
{
    const int64_t phases = pst_conv_volume(p->split);

    for (int64_t r = 0; r < phases; r++) {
        const int64_t r2 = r % p->split[2], r1 = r / p->split[2] % p->split[1],
                      r0 = r / p->split[2] / p->split[1];

        for (int64_t e0 = 0; e0 < p->size[0]; e0++)
            for (int64_t e1 = 0; e1 < p->size[1]; e1++, to += p->size[2]) {
                const int64_t a = e0 * p->split[0] + r0 - p->lead[0];
                const int64_t b = e1 * p->split[1] + r1 - p->lead[1];
                const bool in =
                    a >= 0 && a < p->from[0] && b >= 0 && b < p->from[1];

                copy_line(p, r2,
                          in ? from + (a * p->from[1] + b) * p->from[2] : NULL,
                          to);
            }
    }
    return to;
}

static void fill_copy(const struct job *j, int64_t image, int64_t group,
                      float *to)
{
    const struct pst_conv *c = j->c;
    const struct copy *p = &j->copy;
    const float *from = j->fill == PST_CONV_X ? c->y->data : c->x->data;
    const int64_t volume = pst_conv_volume(p->from);

    from += (image * c->groups + group) * p->channels * volume;
    for (int64_t i = 0; i < p->channels; i++)
        to = copy_channel(p, from + i * volume, to);
    memset(to, 0, SLACK * sizeof(float));
}

/* --- taps --------------------------------------------------------------- */

/* Pass number i of the result; false if it is empty. */
static bool pass_of(const struct job *j, int64_t i, struct pass *ret)
{
    const struct pst_conv *c = j->c;
    bool any = true;

    for (unsigned d = PST_CONV_DIMS; d-- > 0;) {
        int64_t last;

        if (j->fill != PST_CONV_X) {
            ret->first[d] = 0;
            ret->step[d] = 1;
            ret->count[d] = c->out[d];
            continue;
        }
        ret->phase[d] = i % c->stride[d];
        i /= c->stride[d];
        range_of(c, d, ret->phase[d], &ret->first[d], &last);
        ret->count[d] = last - ret->first[d] + 1;
        ret->place[d] = ret->first[d] + j->copy.lead[d];
        ret->first[d] =
            ret->first[d] * c->stride[d] + ret->phase[d] - c->pad[d];
        ret->step[d] = c->stride[d];
        any = any && ret->count[d] > 0;
    }
    return any;
}

/* Place of window element `at` along a dimension of the copy, and in *phase
 * its phase; -1: the pass does not have it. */
static int64_t place_of(const struct job *j, const struct pass *p, unsigned d,
                        int64_t at, int64_t *phase)
{
    const int64_t u = at * j->c->dil[d], s = j->c->stride[d];

    *phase = 0;
    if (j->fill == PST_CONV_X)
        return u % s == p->phase[d] ? p->place[d] - u / s : -1;
    *phase = u % s;
    return u / s;
}

/* Of a window element in the copy of a channel; -1: the pass lacks it. */
static int64_t window_place(const struct job *j, const struct pass *p,
                            int64_t element)
{
    const struct copy *copy = &j->copy;
    int64_t place = 0, phases = 0, step[PST_CONV_DIMS];

    step[2] = element % j->c->k[2];
    step[1] = element / j->c->k[2] % j->c->k[1];
    step[0] = element / j->c->k[2] / j->c->k[1];
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        int64_t phase;
        const int64_t at = place_of(j, p, d, step[d], &phase);

        if (at < 0)
            return -1;
        place = place * copy->size[d] + at;
        phases = phases * copy->split[d] + phase;
    }
    return phases * pst_conv_volume(copy->size) + place;
}

/* All passes with their taps; returns the number of those with results. */
static int64_t fill_passes(const struct job *j, const struct room *room)
{
    const int64_t window = pst_conv_volume(j->c->k), n = j->copy.channels;
    const int64_t plane = plane_of(&j->copy);
    int64_t *at = room->taps, passes = 0;

    for (int64_t i = 0; i < j->passes; i++) {
        struct pass *p = &room->passes[passes];

        if (!pass_of(j, i, p))
            continue;
        passes++;
        p->taps = 0;
        p->offset_of = at;
        p->weight_of = at + n * window;
        for (int64_t k = 0; k < window; k++)
            if (window_place(j, p, k) >= 0)
                p->taps++;
        for (int64_t channel = 0; channel < n; channel++)
            for (int64_t k = 0; k < window; k++) {
                const int64_t place = window_place(j, p, k);

                if (place < 0)
                    continue;
                at[n * window] =
                    (channel * (j->fill == PST_CONV_X ? j->out : 1)) * window +
                    k;
                *at++ = channel * plane + place;
            }
        p->taps *= n;
    }
    return passes;
}

/* Weights (taps, rows) of a block; 0 for rows that are not there. */
static void pack(const struct job *j, const struct pass *p, int64_t group,
                 int64_t block, float *to)
{
    const float *w =
        (const float *)j->c->w->data +
        group * j->out * j->copy.channels * pst_conv_volume(j->c->k) +
        block * j->rows * j->row_step;
    const int64_t rows = PST_MIN(j->rows, j->out - block * j->rows);

    for (int64_t t = 0; t < p->taps; t++, to += j->rows)
        for (int64_t r = 0; r < j->rows; r++)
            to[r] = r < rows ? w[p->weight_of[t] + r * j->row_step] : 0.0f;
}

/* Positions of a pass, counted along lines of the copy. */
static int64_t length_of(const struct job *j, const struct pass *p)
{
    const int64_t *size = j->copy.size, *n = p->count;

    return ((n[0] - 1) * size[1] + n[1] - 1) * size[2] + n[2];
}

/* --- results ------------------------------------------------------------ */

/* Lines of results, or parts of them, in a strip of positions: n elements from
 * position `at` of the strip are elements to, to + step ... of a plane. */
struct lines {
    const struct job *j;
    const struct pass *p;
    const int64_t *dst; /* sizes of the plane */
    int64_t at, n, to;
    int64_t next, end; /* position in the strip of what follows; of its end */
    int64_t col, l1, l0;
};

static struct lines lines_of(const struct job *j, const struct pass *p,
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

/* The next line; false: none. */
static bool next_line(struct lines *l)
{
    const struct pass *p = l->p;
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

/* Plane of a row of a block of the result; NULL: there is no such row. */
static float *plane_at(const struct job *j, int64_t image, int64_t group,
                       int64_t row)
{
    const bool of_x = j->fill == PST_CONV_X;
    float *to = of_x ? j->c->x->data : j->c->y->data;
    const int64_t channel = (image * j->c->groups + group) * j->out + row;

    if (row >= j->out)
        return NULL;
    return to + channel * pst_conv_volume(of_x ? j->c->in : j->c->out);
}

static void store(const struct job *j, const struct pass *p, int64_t image,
                  int64_t group, int64_t block, int64_t begin, int64_t n,
                  const float *strip)
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

/* Do whole tiles of this block lie in the result as they are computed? */
static bool is_plain(const struct job *j, const struct pass *p, int64_t block)
{
    return !j->c->accumulate && p->step[2] == 1 && p->count[1] == 1 &&
           p->count[0] == 1 && p->first[0] == 0 && p->first[1] == 0 &&
           p->first[2] == 0 && (block + 1) * j->rows <= j->out;
}

static void run_pass(const struct job *j, const struct pass *p, int64_t image,
                     int64_t group, int64_t block, const struct room *room)
{
    const int64_t length = length_of(j, p);
    const bool plain = is_plain(j, p, block);
    float bias[PST_CONV_ROWS] = {0};

    for (int64_t r = 0; r < j->rows; r++)
        if (j->c->bias != NULL && block * j->rows + r < j->out)
            bias[r] =
                ((const float *)
                     j->c->bias->data)[group * j->out + block * j->rows + r];
    pack(j, p, group, block, room->w);
    for (int64_t i = 0; i < length; i += j->strip) {
        struct pst_conv_tile tile = {.n = PST_MIN(j->strip, length - i),
                                     .taps = p->taps,
                                     .offset = p->offset_of,
                                     .x = room->copy + i,
                                     .rows = (int)j->rows,
                                     .w = room->w,
                                     .bias = bias,
                                     .y = room->strip,
                                     .ldy = j->strip};

        if (plain && tile.n == j->strip) {
            tile.y = plane_at(j, image, group, block * j->rows) + i;
            tile.ldy = length;
            j->loops->sums(&tile);
        } else {
            j->loops->sums(&tile);
            store(j, p, image, group, block, i, tile.n, room->strip);
        }
    }
}

static void part_sums(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_conv *c = j->c;
    struct room room;
    int64_t a, b, passes, last = -1;

    room_of(j, part, &room);
    passes = fill_passes(j, &room);
    pst_pool_share(c->n * c->groups * j->blocks, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t unit = a / j->blocks;
        const int64_t image = unit / c->groups, group = unit % c->groups;

        if (unit != last)
            fill_copy(j, image, group, room.copy);
        last = unit;
        for (int64_t i = 0; i < passes; i++)
            run_pass(j, &room.passes[i], image, group, a % j->blocks, &room);
    }
}

/* --- gradients of weights ----------------------------------------------- */

/* n gradients of a block from a position on, 0 between lines. */
static void spread(const struct job *j, const struct pass *p, int64_t image,
                   int64_t group, int64_t block, int64_t begin, int64_t n,
                   float *strip)
{
    memset(strip, 0, STRIP * sizeof(float));
    for (int64_t r = 0; r < j->rows; r++, strip += j->strip) {
        const float *from = plane_at(j, image, group, block * j->rows + r);
        struct lines l = lines_of(j, p, j->c->out, begin, n);

        while (from != NULL && next_line(&l))
            memcpy(strip + l.at, from + l.to, (size_t)l.n * sizeof(float));
    }
}

static void block_dots(const struct job *j, const struct pass *p, int64_t image,
                       int64_t group, int64_t block, const struct room *room)
{
    const int64_t length = length_of(j, p);

    for (int64_t i = 0; i < length; i += j->strip) {
        const struct pst_conv_tile tile = {.n = PST_MIN(j->strip, length - i),
                                           .taps = p->taps,
                                           .offset = p->offset_of,
                                           .x = room->copy + i,
                                           .rows = (int)j->rows,
                                           .y = room->strip,
                                           .ldy = j->strip,
                                           .lanes = room->lanes};

        spread(j, p, image, group, block, i, tile.n, room->strip);
        j->loops->dots(&tile);
    }
}

/* Lanes are added to the sums and cleared. */
static void join_lanes(int64_t n, float *lanes, double *sums)
{
    for (int64_t s = 0; s < n; s++, lanes += PST_CONV_LANES)
        for (int64_t i = 0; i < PST_CONV_LANES; i++) {
            sums[s] += (double)lanes[i];
            lanes[i] = 0.0f;
        }
}

static void store_w(const struct job *j, int64_t taps, int64_t group,
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

/* Blocks begin..end-1 of a group. */
static void group_dots(const struct job *j, const struct pass *p, int64_t group,
                       int64_t begin, int64_t end, const struct room *room)
{
    const int64_t each = p->taps * j->rows;

    memset(room->lanes, 0, (size_t)(each * PST_CONV_LANES) * sizeof(float));
    memset(room->sums, 0, (size_t)(each * (end - begin)) * sizeof(double));
    for (int64_t image = 0; image < j->c->n; image++) {
        fill_copy(j, image, group, room->copy);
        for (int64_t block = begin; block < end; block++) {
            block_dots(j, p, image, group, block, room);
            join_lanes(each, room->lanes, room->sums + (block - begin) * each);
        }
    }
    for (int64_t block = begin; block < end; block++)
        store_w(j, p->taps, group, block, room->sums + (block - begin) * each);
}

static void part_dots(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    struct room room;
    int64_t a, b;

    room_of(j, part, &room);
    fill_passes(j, &room);
    pst_pool_share(j->c->groups * j->blocks, 1, part, parts, &a, &b);
    while (a < b) {
        const int64_t begin = a % j->blocks;
        const int64_t end = PST_MIN(j->blocks, begin + b - a);

        group_dots(j, room.passes, a / j->blocks, begin, end, &room);
        a += end - begin;
    }
}

/* --- entry -------------------------------------------------------------- */

/*
 * Few channels on a side make products of a bad shape; the gradient of x is
 * different, since its matrix has a row for each element of the windows.
 * Weights are packed for every image, so there have to be more results.
 */
bool pst_conv_direct_likes(const struct pst_conv *c, enum pst_conv_fill fill)
{
    const int64_t ci = c->ci / c->groups, co = c->co / c->groups;
    const int64_t of = fill == PST_CONV_X ? co : PST_MIN(ci, co);
    const int64_t taps = pst_conv_volume(c->k) * (fill == PST_CONV_X ? co : ci);
    struct job j;

    if (of >= FEW || pst_conv_volume(c->k) == 1 ||
        pst_conv_volume(c->stride) > MAX_PHASES ||
        taps > pst_conv_volume(c->out))
        return false;
    j = job_of(c, fill);
    return j.copy.channels * plane_of(&j.copy) < MAX_COPY;
}

void pst_conv_direct_run(const struct pst_conv *c, enum pst_conv_fill fill,
                         struct pst_pool *pool, void *scratch,
                         const struct pst_conv_loops *loops)
{
    struct job j = job_of(c, fill);
    struct room unused;

    j.loops = loops;
    j.each = room_of(&j, 0, &unused);
    j.scratch = scratch;
    pst_pool_run(pool, fill == PST_CONV_W ? part_dots : part_sums, &j);
}
