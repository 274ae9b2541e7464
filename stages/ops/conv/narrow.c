// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/narrow.h"

#include "stages/base/host/cpu.h"
#include "stages/ops/conv/direct_plan.h"

#include <string.h>

#define LINE PST_NARROW_LINE
#define MAX_CHANNELS                                                           \
    128 /* maximum channels of a group: its weights then stay in the L2 cache  \
         */
/* maximum channels for y if the stride is not 1, since lines are shorter
 * then */
#define MAX_STRIDED 64
#define SLACK       256 /* floats after a copy, as in direct_plan.c */
/* maximum number of floats of a copy, which stays in the L2 cache */
#define LARGE (1 << 20)

struct job {
    struct pst_direct_job plan;
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    const struct pst_narrow_loops *loops;
    int64_t rows;   /* channels of a group of the result; PST_CONV_W: of y */
    int64_t width;  /* rows (PST_CONV_W: channels of x) rounded up to LINEs */
    int64_t taps;   /* taps of all passes together */
    int64_t window; /* elements of a window */
    int64_t plane;  /* floats of a channel's copy */
    int64_t pieces; /* parts of the work for a group (of an image, unless
                       PST_CONV_W) */
    int64_t passes;
    struct pst_direct_scratch shared; /* the list of passes and their taps */
    float *parts; /* scratch of the threads, each divided into the three areas
                     below */
    int64_t copy, turned, sums, part;
};

static int64_t round_up(int64_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static struct job job_of(const struct pst_conv *c, enum pst_conv_fill fill)
{
    struct job j = {.plan = pst_direct_job(c, fill), .c = c, .fill = fill};
    const int64_t channels = j.plan.copy.channels;

    j.rows = j.plan.out;
    j.width = round_up(fill == PST_CONV_W ? channels : j.rows);
    j.window = pst_conv_volume(c->k);
    j.taps = channels * j.window;
    j.plane = pst_direct_plane(&j.plan.copy);
    j.copy = round_up(channels * j.plane + SLACK);
    j.turned = fill == PST_CONV_W ? j.plane * j.width : j.taps * j.width;
    j.sums = fill == PST_CONV_W ? j.window * j.rows * j.width : j.width;
    j.part = j.copy + j.turned + j.sums;
    return j;
}

/* Divides the scratch among the members of *j (scratch NULL: only sets their
 * sizes). Returns its size in floats. */
static int64_t divide_scratch(struct job *j, unsigned threads, float *scratch)
{
    const int64_t per = sizeof(int64_t) / sizeof(float);
    const int64_t passes =
        round_up(j->plan.passes *
                 (int64_t)(sizeof(struct pst_direct_pass) / sizeof(float)));
    const int64_t taps = round_up(j->taps * 2 * per);

    if (scratch != NULL) {
        j->shared.passes = (void *)scratch;
        j->shared.taps = (void *)(scratch + passes);
        j->parts = scratch + passes + taps;
    }
    return passes + taps + threads * j->part;
}

/* Returns the first plane of a group in an image of tensor t. */
static float *plane_of(const struct job *j, const struct pst_operand *t,
                       const int64_t size[PST_CONV_DIMS], int64_t image,
                       int64_t group, int64_t channels)
{
    return (float *)t->data +
           (image * j->c->groups + group) * channels * pst_conv_volume(size);
}

/* --- y and x -------------------------------------------------------------- */

/* Transposes the weights of all passes of a group to (taps, width), in runs of
 * consecutive weights. */
static void transpose_weights(const struct job *j, int64_t group, float *to)
{
    const float *w = (const float *)j->c->w->data +
                     group * j->rows * j->plan.copy.channels * j->window;

    memset(to, 0, (size_t)(j->taps * j->width) * sizeof(*to));
    for (int64_t i = 0; i < j->passes; i++) {
        const struct pst_direct_pass *p = &j->shared.passes[i];

        for (int64_t t = 0, n; t < p->taps; t += n, to += n * j->width) {
            for (n = 1; t + n < p->taps; n++)
                if (p->weight_of[t + n] != p->weight_of[t] + n)
                    break;
            j->loops->turn(j->rows, n, w + p->weight_of[t], j->plan.row_step,
                           to, j->width);
        }
    }
}

static void fill_bias(const struct job *j, int64_t group, float *to)
{
    for (int64_t r = 0; r < j->width; r++)
        to[r] = j->c->bias == NULL || r >= j->rows
                    ? 0.0f
                    : ((const float *)j->c->bias->data)[group * j->rows + r];
}

/* Computes lines [a, b) of the results of a pass. */
static void run_lines(const struct job *j, const struct pst_direct_pass *p,
                      int64_t a, int64_t b, const float *copy, float *y,
                      const float *w, const float *bias)
{
    const int64_t *size = j->plan.copy.size;
    const int64_t *to = j->fill == PST_CONV_X ? j->c->in : j->c->out;
    struct pst_narrow_sums s = {.n = p->count[2],
                                .taps = p->taps,
                                .offset = p->offset_of,
                                .rows = j->rows,
                                .width = j->width,
                                .w = w,
                                .bias = bias,
                                .ldy = pst_conv_volume(to),
                                .add = j->c->accumulate};

    for (; a < b; a++) {
        const int64_t l0 = a / p->count[1], l1 = a % p->count[1];

        s.x = copy + (l0 * size[1] + l1) * size[2];
        s.y = y +
              ((p->first[0] + l0 * p->step[0]) * to[1] + p->first[1] +
               l1 * p->step[1]) *
                  to[2] +
              p->first[2];
        j->loops->sums(&s);
    }
}

static void part_sums(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_conv *c = j->c;
    float *copy = j->parts + part * j->part, *turned = copy + j->copy;
    float *bias = turned + j->turned;
    int64_t a, b, last = -1, of_group = -1;

    pst_pool_share(c->groups * c->n * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t unit = a / j->pieces;
        const int64_t group = unit / c->n, image = unit % c->n;
        const float *w = turned;
        float *y = j->fill == PST_CONV_X
                       ? plane_of(j, c->x, c->in, image, group, j->rows)
                       : plane_of(j, c->y, c->out, image, group, j->rows);

        if (group != of_group) {
            transpose_weights(j, group, turned);
            fill_bias(j, group, bias);
        }
        if (unit != last)
            pst_direct_fill(&j->plan, image, group, copy);
        of_group = group;
        last = unit;
        for (int64_t i = 0; i < j->passes; i++) {
            const struct pst_direct_pass *p = &j->shared.passes[i];
            int64_t begin, end;

            pst_pool_share(p->count[0] * p->count[1], 1,
                           (unsigned)(a % j->pieces), (unsigned)j->pieces,
                           &begin, &end);
            run_lines(j, p, begin, end, copy, y, w, bias);
            w += p->taps * j->width;
        }
    }
}

/* --- w -------------------------------------------------------------------- */

/* Multiplies an image's y with its copy for window elements [a, b), and adds to
 * sums (elements, rows, width). */
static void add_image(const struct job *j, int64_t image, int64_t group,
                      int64_t a, int64_t b, const float *turned, float *sums)
{
    const struct pst_conv *c = j->c;
    const int64_t *size = j->plan.copy.size;
    const float *y = plane_of(j, c->y, c->out, image, group, j->rows);
    struct pst_narrow_dots d = {.lines = c->out[1],
                                .n = c->out[2],
                                .rows = j->rows,
                                .width = j->width,
                                .ldy = pst_conv_volume(c->out),
                                .y_line = c->out[2],
                                .x_line = size[2] * j->width};

    for (int64_t k = a; k < b; k++)
        for (int64_t l0 = 0; l0 < c->out[0]; l0++) {
            const int64_t at =
                j->shared.passes->offset_of[k] + l0 * size[1] * size[2];

            d.y = y + l0 * c->out[1] * c->out[2];
            d.x = turned + at * j->width;
            d.sums = sums + k * j->rows * j->width;
            j->loops->dots(&d);
        }
}

static void store_w(const struct job *j, int64_t group, int64_t a, int64_t b,
                    const float *sums)
{
    const int64_t channels = j->plan.copy.channels;
    float *w = (float *)j->c->w->data + group * j->rows * channels * j->window;

    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t i = 0; i < channels; i++, w += j->window)
            for (int64_t k = a; k < b; k++) {
                const float sum = sums[(k * j->rows + r) * j->width + i];

                w[k] = j->c->accumulate ? w[k] + sum : sum;
            }
}

static void part_dots(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    float *copy = j->parts + part * j->part, *turned = copy + j->copy;
    float *sums = turned + j->turned;
    int64_t a, b;

    memset(turned, 0, (size_t)j->turned * sizeof(*turned));
    pst_pool_share(j->c->groups * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t group = a / j->pieces;
        int64_t first, end;

        pst_pool_share(j->window, 1, (unsigned)(a % j->pieces),
                       (unsigned)j->pieces, &first, &end);
        memset(sums, 0, (size_t)j->sums * sizeof(*sums));
        for (int64_t image = 0; image < j->c->n && first < end; image++) {
            pst_direct_fill(&j->plan, image, group, copy);
            j->loops->turn(j->plan.copy.channels, j->plane, copy, j->plane,
                           turned, j->width);
            add_image(j, image, group, first, end, turned, sums);
        }
        store_w(j, group, first, end, sums);
    }
}

/* --- entry points --------------------------------------------------------- */

bool pst_conv_narrow_fits(const struct pst_conv *c, enum pst_conv_fill fill)
{
    const int64_t most = PST_MAX(c->ci, c->co) / c->groups;
    const struct pst_direct_job plan = pst_direct_job(c, fill);
    double floats = (double)plan.copy.channels;

    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        floats *= (double)plan.copy.size[d] * (double)plan.copy.phases[d];
        if (c->stride[d] != 1 &&
            (fill == PST_CONV_X || (fill == PST_CONV_Y && most > MAX_STRIDED)))
            return false;
    }
    return most <= MAX_CHANNELS && floats <= LARGE;
}

#if PST_HAVE_DNNL
bool pst_conv_narrow_preferred(const struct pst_conv *c,
                               enum pst_conv_fill fill)
{
    (void)c, (void)fill;
    return false;
}
#else
/* True if both sides of a group have more than PST_CONV_FEW channels (fewer
 * would leave half of a vector unused) and the window has several elements
 * (with one, the convolution is a matmul). */
bool pst_conv_narrow_preferred(const struct pst_conv *c,
                               enum pst_conv_fill fill)
{
    const int64_t ci = c->ci / c->groups, co = c->co / c->groups;

    return PST_MIN(ci, co) > PST_CONV_FEW && pst_conv_volume(c->k) > 1 &&
           pst_cpu_isa() == PST_ISA_AVX512 && pst_conv_narrow_fits(c, fill);
}
#endif

size_t pst_conv_narrow_scratch(const struct pst_conv *c,
                               enum pst_conv_fill fill, unsigned threads)
{
    struct job j = job_of(c, fill);

    return (size_t)divide_scratch(&j, threads, NULL) * sizeof(float);
}

void pst_conv_narrow_run(const struct pst_conv *c, enum pst_conv_fill fill,
                         struct pst_pool *pool, void *scratch,
                         const struct pst_narrow_loops *loops)
{
    const unsigned threads = pst_pool_threads(pool);
    struct job j = job_of(c, fill);

    j.loops = loops;
    divide_scratch(&j, threads, scratch);
    j.passes = pst_direct_passes(&j.plan, &j.shared);
    j.pieces = c->groups * (fill == PST_CONV_W ? 1 : c->n) % threads == 0
                   ? 1
                   : threads;
    pst_pool_run(pool, fill == PST_CONV_W ? part_dots : part_sums, &j);
}

const struct pst_narrow_loops *pst_narrow_loops(void)
{
#define LOOPS(suffix, set)                                                     \
    if (pst_cpu_isa() >= PST_ISA_##set)                                        \
        return &pst_narrow_loops_##suffix;
    PST_SIMD_EACH(LOOPS)
#undef LOOPS
    return NULL;
}
