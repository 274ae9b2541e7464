// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows.h"

#include "stages/ops/conv/direct_plan.h"

#include <string.h>

#define FEW        8 /* rows: packing costs more than the product */
#define MAX_PHASES 64
#define MAX_COPY   (1 << 22) /* floats of an image's copy */
#define MAX_PART   (1 << 23) /* floats of a thread's scratch */
#define ENOUGH     512       /* positions of a good product */
#define STRIP      512       /* positions at a time, of which results move */
#define SLACK      256       /* as direct_plan.c leaves behind a copy */
#define ROOM       16        /* floats; parts of the scratch start at these */
#define GRAIN      32        /* positions or taps, so that panels are whole */

struct job {
    struct pst_direct_job plan;
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    pst_windows_fn product;
    int64_t sets, each; /* sets of images, images of one */
    int64_t pieces;     /* of a set's or a group's work */
    bool by_rows;       /* pieces are rows of the result, not positions */
    bool bare;          /* the copy is the tensor */
    bool straight;      /* results lie in their tensor as they are computed */
    int64_t image;      /* floats from an image's copy to the next */
    int64_t rows, taps; /* of a group, of all passes */
    int64_t passes;
    struct pst_direct_room shared; /* passes and taps */
    bool turned;                   /* weights are laid out anew */
    float *weights;                /* (groups, passes, taps, rows) */
    float *parts;                  /* scratch of the parts */
    int64_t copy, side, part;      /* floats of each part, and of its pieces */
};

static int64_t whole(int64_t n)
{
    return (n + ROOM - 1) / ROOM * ROOM;
}

static const struct pst_operand *source_of(const struct job *j)
{
    return j->fill == PST_CONV_X ? j->c->y : j->c->x;
}

/* Positions of an image that the sums of a pass, at most, have. */
static int64_t most_positions(const struct job *j)
{
    const struct pst_conv *c = j->c;
    int64_t n = 1;

    if (j->fill != PST_CONV_X)
        return pst_conv_volume(c->out);
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        n *= (c->in[d] + c->stride[d] - 1) / c->stride[d];
    return n;
}

static bool is_bare(const struct pst_direct_copy *p)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        if (p->split[d] != 1 || p->lead[d] != 0 || p->size[d] != p->from[d])
            return false;
    return true;
}

static struct job job_of(const struct pst_conv *c, enum pst_conv_fill fill)
{
    struct job j = {.plan = pst_direct_job(c, fill), .c = c, .fill = fill};
    const int64_t p = PST_MAX(most_positions(&j), 1);

    j.bare = is_bare(&j.plan.copy);
    j.image = j.bare ? pst_conv_volume(j.plan.copy.from) * c->groups *
                           j.plan.copy.channels
                     : pst_direct_plane(&j.plan.copy) * j.plan.copy.channels;
    j.rows = j.plan.out;
    j.turned = fill == PST_CONV_X && pst_conv_volume(c->k) > 1;
    j.taps = j.plan.copy.channels * pst_conv_volume(c->k);
    j.sets = PST_MIN((c->n * p + ENOUGH - 1) / ENOUGH, c->n);
    j.each = j.sets == 0 ? 0 : (c->n + j.sets - 1) / j.sets;
    j.sets = j.each == 0 ? 0 : (c->n + j.each - 1) / j.each;
    j.straight = j.each == 1 && pst_conv_volume(c->stride) == 1;
    if (fill == PST_CONV_Y)
        j.straight = j.each == 1;
    j.copy = j.bare ? 0 : whole(j.each * j.image + SLACK);
    if (fill == PST_CONV_W)
        j.side = j.each > 1 ? whole(j.rows * j.each * p) : 0;
    else
        j.side = j.straight ? 0 : whole(j.rows * STRIP);
    j.part = j.copy + j.side + PST_PACKED_ROOM;
    return j;
}

/* Cuts the scratch: passes, taps, weights, parts. Returns its floats. */
static int64_t cut(struct job *j, unsigned threads, float *scratch)
{
    const int64_t per = sizeof(int64_t) / sizeof(float);
    const int64_t passes =
        j->plan.passes *
        (int64_t)(sizeof(struct pst_direct_pass) / sizeof(float));
    int64_t n = 0;

    if (scratch != NULL)
        j->shared.passes = (void *)scratch;
    n += whole(passes);
    if (scratch != NULL)
        j->shared.taps = (void *)(scratch + n);
    n += whole(j->taps * 2 * per);
    if (scratch != NULL)
        j->weights = scratch + n;
    n += j->turned ? whole(j->c->groups * j->rows * j->taps) : 0;
    if (scratch != NULL)
        j->parts = scratch + n;
    return n + threads * j->part;
}

static float *copy_of(const struct job *j, unsigned part)
{
    return j->parts + part * j->part;
}

static float *side_of(const struct job *j, unsigned part)
{
    return copy_of(j, part) + j->copy;
}

/* Of the product, behind a part's side. */
static float *room_of(const struct job *j, float *side)
{
    return side + j->side;
}

/* --- the pieces of a product -------------------------------------------- */

static int64_t images_of(const struct job *j, int64_t set)
{
    return PST_MIN(j->each, j->c->n - set * j->each);
}

static void fill_copy(const struct job *j, int64_t set, int64_t group,
                      float *to)
{
    for (int64_t i = 0; !j->bare && i < images_of(j, set); i++)
        pst_direct_fill(&j->plan, set * j->each + i, group, to + i * j->image);
}

static struct pst_windows windows_of(const struct job *j,
                                     const struct pst_direct_pass *p,
                                     int64_t set, int64_t group,
                                     const float *copy)
{
    const struct pst_direct_copy *from = &j->plan.copy;
    struct pst_windows ret = {
        .copy = copy,
        .end = copy + j->copy,
        .taps = p->offset_of,
        .count = {p->count[0], p->count[1], p->count[2]},
        .step = {j->image, from->size[1] * from->size[2], from->size[2]}};

    if (j->bare) {
        ret.copy = (const float *)source_of(j)->data +
                   set * j->each * j->image +
                   group * from->channels * pst_conv_volume(from->from);
        ret.end = (const float *)source_of(j)->data + j->c->n * j->image;
    }
    return ret;
}

/* Plane of a row of the result of a group. */
static float *plane_of(const struct job *j, int64_t image, int64_t group,
                       int64_t row)
{
    const bool of_x = j->fill == PST_CONV_X;
    const struct pst_operand *to = of_x ? j->c->x : j->c->y;

    return (float *)to->data +
           ((image * j->c->groups + group) * j->rows + row) *
               pst_conv_volume(of_x ? j->c->in : j->c->out);
}

static float bias_of(const struct job *j, int64_t group, int64_t row)
{
    return j->c->bias == NULL
               ? 0.0f
               : ((const float *)j->c->bias->data)[group * j->rows + row];
}

/* Weights of a pass of a group: (rows, taps) for y, (taps, rows) for x, whose
 * taps are weights of one window element if that is all there is. */
static const float *weights_of(const struct job *j, int64_t pass, int64_t group)
{
    int64_t before = 0;

    if (!j->turned)
        return (const float *)j->c->w->data + group * j->rows * j->taps;
    for (int64_t i = 0; i < pass; i++)
        before += j->shared.passes[i].taps;
    return j->weights + (group * j->taps + before) * j->rows;
}

/* --- weights of the gradient of x ---------------------------------------- */

/* Taps [a, b) of a pass of a group. */
static void turn_weights(const struct job *j, int64_t pass, int64_t group,
                         int64_t a, int64_t b)
{
    const struct pst_direct_pass *p = &j->shared.passes[pass];
    const float *w = (const float *)j->c->w->data + group * j->rows * j->taps;
    float *to = (float *)weights_of(j, pass, group) + a * j->rows;

    for (; a < b; a++, to += j->rows) {
        const float *from = w + p->weight_of[a];

        for (int64_t i = 0; i < j->rows; i++)
            to[i] = from[i * j->plan.row_step];
    }
}

static void part_weights(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;

    for (int64_t group = 0; group < j->c->groups; group++)
        for (int64_t i = 0; i < j->passes; i++) {
            int64_t a, b;

            pst_pool_share(j->shared.passes[i].taps, 1, part, parts, &a, &b);
            turn_weights(j, i, group, a, b);
        }
}

/* --- y and x ------------------------------------------------------------- */

/* Rows and positions of a product: of a set, a group and a pass. */
struct range {
    int64_t set, group, pass;
    int64_t row[2], at[2];
};

/* A line of results: from (n floats) becomes or is added to `to`. */
static void store_line(const struct job *j, int64_t n, int64_t step, float bias,
                       const float *restrict from, float *restrict to)
{
    if (j->c->accumulate)
        for (int64_t i = 0; i < n; i++)
            to[i * step] += from[i] + bias;
    else if (step == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i] + bias;
    else if (step == 2)
        for (int64_t i = 0; i < n; i++)
            to[i * 2] = from[i] + bias;
    else
        for (int64_t i = 0; i < n; i++)
            to[i * step] = from[i] + bias;
}

/* Rows of n positions from `at` on go where they belong. */
static void scatter(const struct job *j, const struct range *r, int64_t at,
                    int64_t n, const float *from)
{
    const struct pst_direct_pass *p = &j->shared.passes[r->pass];
    const int64_t *size = j->fill == PST_CONV_X ? j->c->in : j->c->out;

    for (int64_t row = r->row[0]; row < r->row[1]; row++)
        for (int64_t i = 0, len; i < n; i += len, from += len) {
            const int64_t col = (at + i) % p->count[2];
            const int64_t line = (at + i) / p->count[2];
            const int64_t slab = line / p->count[1];
            const int64_t image = slab / p->count[0];
            float *to =
                plane_of(j, r->set * j->each + image, r->group, row) +
                ((p->first[0] + slab % p->count[0] * p->step[0]) * size[1] +
                 p->first[1] + line % p->count[1] * p->step[1]) *
                    size[2] +
                p->first[2] + col * p->step[2];

            len = PST_MIN(p->count[2] - col, n - i);
            store_line(j, len, p->step[2], bias_of(j, r->group, row), from, to);
        }
}

/* Results that are added to start from the bias. */
static void start(const struct job *j, const struct range *r, int64_t n,
                  int64_t ld, float *to)
{
    for (int64_t row = r->row[0]; row < r->row[1]; row++, to += ld) {
        const float bias = bias_of(j, r->group, row);

        for (int64_t i = 0; i < n; i++)
            to[i] = j->c->accumulate ? to[i] + bias : bias;
    }
}

static void multiply_straight(const struct job *j, const struct range *r,
                              struct pst_gemm *g, const float *a,
                              const struct pst_windows *b, float *room)
{
    float *to = plane_of(j, r->set, r->group, r->row[0]) + r->at[0];

    g->n = r->at[1] - r->at[0];
    g->ldc = pst_conv_volume(j->fill == PST_CONV_X ? j->c->in : j->c->out);
    g->beta = j->c->accumulate || j->c->bias != NULL ? 1.0 : 0.0;
    if (j->c->bias != NULL)
        start(j, r, g->n, g->ldc, to);
    j->product(g, a, b, to, room);
}

static void multiply(const struct job *j, const struct range *r,
                     const float *copy, float *side)
{
    const struct pst_direct_pass *p = &j->shared.passes[r->pass];
    struct pst_windows b = windows_of(j, p, r->set, r->group, copy);
    const bool of_x = j->fill == PST_CONV_X;
    const float *a =
        weights_of(j, r->pass, r->group) + r->row[0] * (of_x ? 1 : p->taps);
    struct pst_gemm g = {.ta = of_x,
                         .m = r->row[1] - r->row[0],
                         .k = p->taps,
                         .lda = of_x ? j->rows : p->taps,
                         .alpha = 1.0};

    b.first = r->at[0];
    if (j->straight) {
        multiply_straight(j, r, &g, a, &b, room_of(j, side));
        return;
    }
    for (; b.first < r->at[1]; b.first += g.n) {
        g.n = g.ldc = PST_MIN(STRIP, r->at[1] - b.first);
        if (g.k == 0)
            memset(side, 0, (size_t)(g.m * g.n) * sizeof(*side));
        else
            j->product(&g, a, &b, side, room_of(j, side));
        scatter(j, r, b.first, g.n, side);
    }
}

static void part_sums(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const int64_t groups = j->c->groups;
    int64_t a, b, last = -1;

    pst_pool_share(j->sets * groups * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t unit = a / j->pieces;
        const unsigned piece = (unsigned)(a % j->pieces);
        const unsigned pieces = (unsigned)j->pieces;
        struct range r = {.set = unit / groups, .group = unit % groups};

        if (unit != last)
            fill_copy(j, r.set, r.group, copy_of(j, part));
        last = unit;
        for (; r.pass < j->passes; r.pass++) {
            const struct pst_direct_pass *p = &j->shared.passes[r.pass];

            r.row[0] = r.at[0] = 0;
            r.row[1] = j->rows;
            r.at[1] = images_of(j, r.set) * pst_conv_volume(p->count);
            if (j->by_rows)
                pst_pool_share(r.row[1], 4, piece, pieces, &r.row[0],
                               &r.row[1]);
            else
                pst_pool_share(r.at[1], GRAIN, piece, pieces, &r.at[0],
                               &r.at[1]);
            if (r.row[0] < r.row[1] && r.at[0] < r.at[1])
                multiply(j, &r, copy_of(j, part), side_of(j, part));
        }
    }
}

/* --- w -------------------------------------------------------------------- */

/* y of a set, (rows, positions of all its images). */
static void join_images(const struct job *j, int64_t set, int64_t group,
                        float *to)
{
    const int64_t p = pst_conv_volume(j->c->out), images = images_of(j, set);

    for (int64_t row = 0; row < j->rows; row++)
        for (int64_t i = 0; i < images; i++, to += p)
            memcpy(to, plane_of(j, set * j->each + i, group, row),
                   (size_t)p * sizeof(*to));
}

/* Taps [a, b) of a group. */
static void multiply_taps(const struct job *j, int64_t group, int64_t a,
                          int64_t b, float *copy, float *side)
{
    const struct pst_conv *c = j->c;
    float *w = (float *)c->w->data + group * j->rows * j->taps + a;

    for (int64_t set = 0; set < j->sets; set++) {
        const int64_t k = images_of(j, set) * pst_conv_volume(c->out);
        struct pst_windows windows =
            windows_of(j, j->shared.passes, set, group, copy);
        const struct pst_gemm g = {.tb = true,
                                   .m = j->rows,
                                   .n = b - a,
                                   .k = k,
                                   .lda = k,
                                   .ldc = j->taps,
                                   .alpha = 1.0,
                                   .beta =
                                       c->accumulate || set > 0 ? 1.0 : 0.0};

        windows.taps += a;
        fill_copy(j, set, group, copy);
        if (j->each > 1)
            join_images(j, set, group, side);
        j->product(&g,
                   j->each > 1 ? side : plane_of(j, set * j->each, group, 0),
                   &windows, w, room_of(j, side));
    }
}

static void part_taps(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t a, b;

    pst_pool_share(j->c->groups * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        int64_t first, last;

        pst_pool_share(j->taps, GRAIN, (unsigned)(a % j->pieces),
                       (unsigned)j->pieces, &first, &last);
        if (first < last)
            multiply_taps(j, a / j->pieces, first, last, copy_of(j, part),
                          side_of(j, part));
    }
}

/* --- entry ---------------------------------------------------------------- */

bool pst_conv_windows_fits(const struct pst_conv *c, enum pst_conv_fill fill)
{
    struct pst_direct_job plan;
    struct job j;
    double floats;

    if (pst_conv_volume(c->stride) > MAX_PHASES)
        return false;
    plan = pst_direct_job(c, fill);
    floats = (double)plan.copy.channels;
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        floats *= (double)plan.copy.size[d] * (double)plan.copy.split[d];
    if (!is_bare(&plan.copy) && floats > MAX_COPY)
        return false;
    j = job_of(c, fill);
    return j.part <= MAX_PART;
}

#if PST_HAVE_DNNL
bool pst_conv_windows_likes(const struct pst_conv *c, enum pst_conv_fill fill)
{
    (void)c, (void)fill;
    return false;
}
#else
bool pst_conv_windows_likes(const struct pst_conv *c, enum pst_conv_fill fill)
{
    const int64_t rows = (fill == PST_CONV_X ? c->ci : c->co) / c->groups;

    return rows >= FEW && pst_cpu_isa() == PST_ISA_AVX512 &&
           pst_conv_windows_fits(c, fill);
}
#endif

size_t pst_conv_windows_scratch(const struct pst_conv *c,
                                enum pst_conv_fill fill, unsigned threads)
{
    struct job j = job_of(c, fill);

    return (size_t)cut(&j, threads, NULL) * sizeof(float);
}

void pst_conv_windows_run(const struct pst_conv *c, enum pst_conv_fill fill,
                          struct pst_pool *pool, void *scratch,
                          pst_windows_fn product)
{
    const unsigned threads = pst_pool_threads(pool);
    struct job j = job_of(c, fill);
    int64_t units = c->groups * (fill == PST_CONV_W ? 1 : j.sets);

    j.product = product;
    cut(&j, threads, scratch);
    j.passes = pst_direct_passes(&j.plan, &j.shared);
    j.pieces = units % threads == 0 ? 1 : threads;
    j.by_rows = j.each * most_positions(&j) <= ENOUGH;
    if (fill == PST_CONV_W && c->n == 0 && !c->accumulate)
        memset(c->w->data, 0, pst_meta_bytes(c->w->meta));
    else if (fill == PST_CONV_W)
        pst_pool_run(pool, part_taps, &j);
    else if (units > 0) {
        if (j.turned)
            pst_pool_run(pool, part_weights, &j);
        pst_pool_run(pool, part_sums, &j);
    }
}
