// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows.h"

#include "stages/ops/conv/windows_job.h"
#include "stages/ops/conv/windows_lines.h"
#include "stages/ops/conv/windows_weights.h"
#include "stages/ops/cpu/simd/tile.h"

#include <string.h>

#define FEW        8 /* minimum rows; fewer are not worth the packing */
#define MAX_PHASES 64
#define MAX_COPY   (1 << 22) /* floats of an image's copy */
#define MAX_PART   (1 << 23) /* floats of a thread's scratch */
#define ENOUGH     512       /* positions with which GEMM has full speed */
#define NEAR       128       /* enough positions of an image without a copy */
#define STRIP      512       /* positions whose results are stored at a time */
#define MAX_PAIR   (3 << 15) /* maximum floats of a strip: two fit the cache */
#define SLACK      256       /* floats after a copy, as in direct_plan.c */
#define ALIGNMENT  16        /* in floats, of scratch areas */
#define GRAIN      32        /* positions or taps in a panel of GEMM */
#define BLOCK      8192      /* floats of weights transposed at a time */
#define NARROW     64 /* rows: up to 64, line ends cost less than packing */

static int64_t round_up(int64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Returns the maximum number of positions of an image in one pass. */
static int64_t most_positions(const struct pst_windows_job *j)
{
    const struct pst_conv *c = j->c;
    int64_t n = 1;

    if (j->fill != PST_CONV_X)
        return pst_conv_volume(c->out);
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        n *= (c->in[d] + c->stride[d] - 1) / c->stride[d];
    return n;
}

/* True if positions should follow the lines of the padded copy (flat): the line
 * ends, which are computed and dropped, must be few. */
static bool flat_pays(const struct pst_windows_job *j)
{
    const struct pst_conv *c = j->c;
    const int64_t *size = j->plan.copy.size;
    int64_t n[PST_CONV_DIMS], all = 1, length = 0;

    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        n[d] = j->fill != PST_CONV_X
                   ? c->out[d]
                   : (c->in[d] + c->stride[d] - 1) / c->stride[d];
        all *= n[d];
        length = length * size[d] + PST_MAX(n[d] - 1, 0);
    }
    return j->rows <= NARROW && 6 * (length + 1) <= 7 * all;
}

static bool is_bare(const struct pst_direct_copy *p)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        if (p->step[d] != 1 || p->lead[d] != 0 || p->size[d] != p->from[d])
            return false;
    return true;
}

static struct pst_windows_job job_of(const struct pst_conv *c,
                                     enum pst_conv_fill fill)
{
    struct pst_windows_job j = {
        .plan = pst_direct_job(c, fill), .c = c, .fill = fill};
    const int64_t p = PST_MAX(most_positions(&j), 1);
    j.bare = is_bare(&j.plan.copy);
    j.image = j.bare ? pst_conv_volume(j.plan.copy.from) * c->groups *
                           j.plan.copy.channels
                     : pst_direct_plane(&j.plan.copy) * j.plan.copy.channels;
    j.rows = j.plan.out;
    j.taps = j.plan.copy.channels * pst_conv_volume(c->k);
    j.flat = fill != PST_CONV_W && !j.bare && flat_pays(&j);
    j.sets = j.flat || (j.bare && fill != PST_CONV_W && p >= NEAR)
                 ? c->n
                 : PST_MIN((c->n * p + ENOUGH - 1) / ENOUGH, c->n);
    j.each = j.sets == 0 ? 0 : (c->n + j.sets - 1) / j.sets;
    j.sets = j.each == 0 ? 0 : (c->n + j.each - 1) / j.each;
    j.straight = j.each == 1 && pst_conv_volume(c->stride) == 1;
    if (fill == PST_CONV_Y)
        j.straight = j.each == 1;
    j.straight = j.straight && !j.flat;
    j.picked = fill == PST_CONV_X && pst_conv_volume(c->k) > 1 &&
               pst_conv_volume(c->stride) == 1 && j.sets == 1 &&
               j.each * p <= STRIP;
    j.turned = fill == PST_CONV_X && pst_conv_volume(c->k) > 1 && !j.picked;
    j.copy = j.bare ? 0 : round_up(j.each * j.image + SLACK);
    /* The padding keeps the rows of a strip in different cache sets. */
    j.ld = round_up(j.flat ? STRIP : PST_MIN(STRIP, j.each * p)) + ALIGNMENT;
    j.pairs =
        fill == PST_CONV_X && c->stride[2] == 2 && j.rows * j.ld <= MAX_PAIR;
    if (fill == PST_CONV_W)
        j.side = j.each > 1 ? round_up(j.rows * j.each * p) : 0;
    else
        j.side = j.straight ? 0 : j.rows * j.ld * (j.pairs ? 2 : 1);
    j.part = j.copy + j.side + PST_PACKED_SCRATCH;
    return j;
}

/* Divides the scratch into passes, taps, weights and parts; if scratch is NULL,
 * only computes its size. Returns the size in floats. */
static int64_t divide_scratch(struct pst_windows_job *j, unsigned threads,
                              float *scratch)
{
    const int64_t per = sizeof(int64_t) / sizeof(float);
    const int64_t passes =
        j->plan.passes *
        (int64_t)(sizeof(struct pst_direct_pass) / sizeof(float));
    int64_t n = 0;

    if (scratch != NULL)
        j->shared.passes = (void *)scratch;
    n += round_up(passes);
    if (scratch != NULL)
        j->shared.taps = (void *)(scratch + n);
    n += round_up(j->taps * 2 * per);
    if (scratch != NULL)
        j->weights = scratch + n;
    n += j->turned ? round_up(j->c->groups * j->rows * j->taps) : 0;
    if (scratch != NULL)
        j->parts = scratch + n;
    return n + threads * j->part;
}

/* Returns the weights of a group in a pass: (rows, taps) if y is computed;
 * (taps, rows) if x is computed and the pass has several window elements, or
 * the weights of its only one. */
static const float *weights_of(const struct pst_windows_job *j, int64_t pass,
                               int64_t group)
{
    int64_t before = 0;

    if (!j->turned)
        return (const float *)j->c->w->data + group * j->rows * j->taps;
    for (int64_t i = 0; i < pass; i++)
        before += j->shared.passes[i].taps;
    return j->weights + (group * j->taps + before) * j->rows;
}

/* --- weights of the gradient of x ---------------------------------------- */

/* Transposes rows [i, i + n) of a channel's weights, which are contiguous in w;
 * n * window floats must fit BLOCK. */
static void transpose_rows(const struct pst_windows_job *j, int64_t group,
                           int64_t channel, int64_t i, int64_t n,
                           const float *w)
{
    const int64_t window = pst_conv_volume(j->c->k);
    float block[BLOCK];

    pst_tile_transpose(n, window, w, window, block, n);
    for (int64_t pass = 0; pass < j->passes; pass++) {
        const struct pst_direct_pass *p = &j->shared.passes[pass];
        const int64_t taps = p->taps / j->plan.copy.channels;
        float *to =
            (float *)weights_of(j, pass, group) + channel * taps * j->rows + i;

        for (int64_t t = 0; t < taps; t++, to += j->rows)
            memcpy(to, block + p->weight_of[t] * n, (size_t)n * sizeof(*to));
    }
}

static void part_weights(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_windows_job *j = ctx;
    const int64_t window = pst_conv_volume(j->c->k);
    const int64_t channels = j->plan.copy.channels;
    int64_t a, b;

    pst_pool_share(channels * j->c->groups, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const float *w = (const float *)j->c->w->data + a * j->rows * window;

        for (int64_t i = 0, n; i < j->rows; i += n) {
            n = PST_MIN(BLOCK / window, j->rows - i);
            transpose_rows(j, a / channels, a % channels, i, n, w + i * window);
        }
    }
}

/* --- y and x ------------------------------------------------------------- */

/* Sets results to the bias before the matmul adds to them; if the call
 * accumulates, adds the bias to them. */
static void init_results(const struct pst_windows_job *j,
                         const struct pst_windows_range *r, int64_t n,
                         int64_t ld, float *to)
{
    for (int64_t row = r->row[0]; row < r->row[1]; row++, to += ld) {
        const float bias = pst_windows_bias(j, r->group, row);

        for (int64_t i = 0; i < n; i++)
            to[i] = j->c->accumulate ? to[i] + bias : bias;
    }
}

static struct pst_gemm product_of(const struct pst_windows_job *j,
                                  const struct pst_windows_range *r,
                                  const struct pst_direct_pass *p)
{
    const bool of_x = j->fill == PST_CONV_X;

    return (struct pst_gemm){.ta = of_x,
                             .m = r->row[1] - r->row[0],
                             .k = p->taps,
                             .lda = of_x ? j->rows : p->taps,
                             .alpha = 1.0};
}

/* Returns the weights of the first row of a range. */
static const float *first_weights(const struct pst_windows_job *j,
                                  const struct pst_windows_range *r,
                                  int64_t pass)
{
    const int64_t per = j->picked               ? j->plan.row_step
                        : j->fill == PST_CONV_X ? 1
                                                : j->shared.passes[pass].taps;

    return weights_of(j, pass, r->group) + r->row[0] * per;
}

static void multiply_straight(const struct pst_windows_job *j,
                              const struct pst_windows_range *r,
                              const float *copy, float *scratch)
{
    const struct pst_direct_pass *p = &j->shared.passes[r->pass];
    struct pst_windows b = pst_windows_of(j, p, r->set, r->group, copy);
    struct pst_gemm g = product_of(j, r, p);
    float *to = pst_windows_plane(j, r->set, r->group, r->row[0]) + r->at[0];

    b.first = r->at[0];
    g.n = r->at[1] - r->at[0];
    g.ldc = pst_conv_volume(j->fill == PST_CONV_X ? j->c->in : j->c->out);
    g.beta = j->c->accumulate || j->c->bias != NULL ? 1.0 : 0.0;
    if (j->c->bias != NULL)
        init_results(j, r, g.n, g.ldc, to);
    j->product(&g, first_weights(j, r, r->pass), &b, to, scratch);
}

/* Computes the results of a pass at n positions from `at` on. */
static void multiply_strip(const struct pst_windows_job *j,
                           const struct pst_windows_range *r, int64_t pass,
                           int64_t at, int64_t n, const float *copy,
                           float *scratch, float *to)
{
    const struct pst_direct_pass *p = &j->shared.passes[pass];
    struct pst_windows b = pst_windows_of(j, p, r->set, r->group, copy);
    struct pst_gemm g = product_of(j, r, p);
    const float *a = first_weights(j, r, pass);

    b.first = at;
    /* The slack at the end of the copy allows rounding up to whole panels. */
    g.n = j->flat ? (n + GRAIN - 1) / GRAIN * GRAIN : n;
    g.ldc = j->ld;
    if (g.k > 0)
        j->product(&g, a, &b, to, scratch);
    else
        memset(to, 0, (size_t)(g.m * g.ldc) * sizeof(*to));
}

static void multiply_range(const struct pst_windows_job *j,
                           const struct pst_windows_range *r, const float *copy,
                           float *side)
{
    float *scratch = pst_windows_scratch(j, side);

    if (j->straight) {
        multiply_straight(j, r, copy, scratch);
        return;
    }
    for (int64_t at = r->at[0], n; at < r->at[1]; at += n) {
        n = PST_MIN(STRIP, r->at[1] - at);
        for (int64_t i = 0; i < r->passes; i++)
            multiply_strip(j, r, r->pass + i, at, n, copy, scratch,
                           side + i * j->rows * j->ld);
        pst_windows_scatter(j, r, at, n, side);
    }
}

/* Returns the number of positions of a range: the maximum over its passes. */
static int64_t positions_of(const struct pst_windows_job *j,
                            const struct pst_windows_range *r)
{
    int64_t ret = 0;

    for (int64_t i = r->pass; i < r->pass + r->passes; i++) {
        const struct pst_direct_pass *p = &j->shared.passes[i];

        ret = PST_MAX(ret, j->flat ? pst_direct_length(&j->plan, p)
                                   : pst_windows_images(j, r->set) *
                                         pst_conv_volume(p->count));
    }
    return ret;
}

static void part_sums(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_windows_job *j = ctx;
    const int64_t groups = j->c->groups;
    int64_t a, b, last = -1;

    pst_pool_share(j->sets * groups * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        const int64_t unit = a / j->pieces;
        const unsigned piece = (unsigned)(a % j->pieces);
        const unsigned pieces = (unsigned)j->pieces;
        struct pst_windows_range r = {.set = unit / groups,
                                      .group = unit % groups};

        if (unit != last)
            pst_windows_fill(j, r.set, r.group, pst_windows_copy(j, part));
        last = unit;
        for (; r.pass < j->passes; r.pass += r.passes) {
            r.passes = pst_windows_count_paired(j, r.pass);
            r.row[0] = r.at[0] = 0;
            r.row[1] = j->rows;
            r.at[1] = positions_of(j, &r);
            if (j->by_rows)
                pst_pool_share(r.row[1], 4, piece, pieces, &r.row[0],
                               &r.row[1]);
            else
                pst_pool_share(r.at[1], GRAIN, piece, pieces, &r.at[0],
                               &r.at[1]);
            if (r.row[0] < r.row[1] && r.at[0] < r.at[1])
                multiply_range(j, &r, pst_windows_copy(j, part),
                               pst_windows_side_buffer(j, part));
        }
    }
}

/* --- entry points --------------------------------------------------------- */

bool pst_conv_windows_fits(const struct pst_conv *c, enum pst_conv_fill fill)
{
    struct pst_direct_job plan;
    struct pst_windows_job j;
    double floats;

    if (pst_conv_volume(c->stride) > MAX_PHASES)
        return false;
    plan = pst_direct_job(c, fill);
    floats = (double)plan.copy.channels;
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        floats *= (double)plan.copy.size[d] * (double)plan.copy.phases[d];
    if (!is_bare(&plan.copy) && floats > MAX_COPY)
        return false;
    j = job_of(c, fill);
    return j.part <= MAX_PART && (!j.turned || pst_conv_volume(c->k) <= BLOCK);
}

#if PST_HAVE_DNNL
bool pst_conv_windows_preferred(const struct pst_conv *c,
                                enum pst_conv_fill fill)
{
    (void)c, (void)fill;
    return false;
}
#else
bool pst_conv_windows_preferred(const struct pst_conv *c,
                                enum pst_conv_fill fill)
{
    const int64_t rows = (fill == PST_CONV_X ? c->ci : c->co) / c->groups;

    /* Most elements of x are in no window: clearing x and adding the windows is
     * less work. */
    if (fill == PST_CONV_X && pst_conv_volume(c->k) == 1 &&
        pst_conv_volume(c->stride) > 1)
        return false;
    return rows >= FEW && pst_cpu_isa() == PST_ISA_AVX512 &&
           pst_conv_windows_fits(c, fill);
}
#endif

size_t pst_conv_windows_scratch(const struct pst_conv *c,
                                enum pst_conv_fill fill, unsigned threads)
{
    struct pst_windows_job j = job_of(c, fill);

    return (size_t)divide_scratch(&j, threads, NULL) * sizeof(float);
}

void pst_conv_windows_run(const struct pst_conv *c, enum pst_conv_fill fill,
                          struct pst_pool *pool, void *scratch,
                          pst_windows_fn product)
{
    const unsigned threads = pst_pool_threads(pool);
    struct pst_windows_job j = job_of(c, fill);
    int64_t units = c->groups * (fill == PST_CONV_W ? 1 : j.sets);

    j.product = product;
    divide_scratch(&j, threads, scratch);
    j.passes = pst_direct_passes(&j.plan, &j.shared);
    j.pieces = units % threads == 0 ? 1 : threads;
    j.by_rows = j.each * most_positions(&j) <= ENOUGH;
    if (fill == PST_CONV_W && c->n == 0 && !c->accumulate)
        memset(c->w->data, 0, pst_meta_bytes(c->w->meta));
    else if (fill == PST_CONV_W)
        pst_pool_run(pool, pst_windows_taps, &j);
    else if (units > 0) {
        if (j.turned)
            pst_pool_run(pool, part_weights, &j);
        pst_pool_run(pool, part_sums, &j);
    }
}
