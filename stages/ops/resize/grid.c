// SPDX-License-Identifier: Apache-2.0
/* grid_sampler with its two gradients, and the grid of an affine map. */
#include "stages/ops/resize/grid.h"

#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"

#include <math.h>
#include <string.h>

/* Fewer positions than this run on the calling thread. */
#define SERIAL 1024

/* The settings of a sampler. In all three operators the arguments mode, padding
 * and align follow the tensors. */
struct sampler {
    unsigned dims;
    int64_t n, c, positions, volume;
    int64_t in[3]; /* spatial sizes, first dimension first */
    int mode, padding;
    bool align;
    const struct pst_operand *x, *grid, *y;
    float *by; /* gradients of the grid; only in the fast f32 kernels */
};

/* --- inference ---------------------------------------------------------- */

static enum pst_status check_sampler(const struct pst_infer *c, unsigned dims,
                                     const struct pst_meta *x,
                                     const struct pst_meta *grid,
                                     unsigned settings, int64_t size[5])
{
    const int64_t mode = c->args[settings].i, pad = c->args[settings + 1].i;
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (x->rank != dims + 2 || grid->rank != dims + 2 ||
        x->dtype != grid->dtype || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT ||
        x->size[0] != grid->size[0] || grid->size[dims + 1] != (int64_t)dims)
        return pst_infer_fail(c, "input %s and grid %s do not fit",
                              pst_meta_text(x, a), pst_meta_text(grid, b));
    if (mode < 0 || mode > 2 || pad < 0 || pad > 2 ||
        (mode == PST_GRID_CUBIC && dims != 2))
        return pst_infer_fail(c, "mode %lld, padding %lld are unknown",
                              (long long)mode, (long long)pad);
    for (unsigned d = 0; d < dims; d++)
        if (x->size[2 + d] < 1)
            return pst_infer_fail(c, "the input is empty");
    size[0] = x->size[0];
    size[1] = x->size[1];
    for (unsigned d = 0; d < dims; d++)
        size[2 + d] = grid->size[1 + d];
    return PST_OK;
}

static enum pst_status sampler_infer(struct pst_infer *c, unsigned dims)
{
    const struct pst_meta *x, *grid;
    int64_t size[5];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &grid);
    if (status == PST_OK)
        status = check_sampler(c, dims, x, grid, 2, size);
    return status == PST_OK ? pst_infer_set(c, 0, x->dtype, dims + 2, size)
                            : status;
}

static enum pst_status sampler_2d_infer(struct pst_infer *c)
{
    return sampler_infer(c, 2);
}

static enum pst_status sampler_3d_infer(struct pst_infer *c)
{
    return sampler_infer(c, 3);
}

/* Infers an operator with arguments gradient, input and grid, whose result is
 * like argument number `like`. */
static enum pst_status backward_infer(struct pst_infer *c, unsigned like)
{
    const struct pst_meta *g, *x, *grid;
    struct pst_meta want = {0};
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &x);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &grid);
    if (status != PST_OK)
        return status;
    want.rank = x->rank;
    want.dtype = x->dtype;
    if (x->rank != 4 && x->rank != 5)
        return pst_infer_fail(c, "the input has %u dimensions", x->rank);
    status = check_sampler(c, x->rank - 2, x, grid, 3, want.size);
    if (status == PST_OK && !pst_meta_same(g, &want))
        status = pst_infer_fail(c, "the gradient is not of the result");
    x = like == 1 ? x : grid;
    return status == PST_OK ? pst_infer_set_like(c, 0, x->dtype, x) : status;
}

static enum pst_status input_infer(struct pst_infer *c)
{
    return backward_infer(c, 1);
}

static enum pst_status grid_infer(struct pst_infer *c)
{
    return backward_infer(c, 2);
}

/* --- loops -------------------------------------------------------------- */

static struct sampler describe(const struct pst_call *c,
                               const struct pst_operand *x,
                               const struct pst_operand *grid,
                               const struct pst_operand *y, unsigned settings)
{
    const struct pst_meta *m = x->meta;
    struct sampler s = {.dims = m->rank - 2,
                        .n = m->size[0],
                        .c = m->size[1],
                        .positions = 1,
                        .volume = 1,
                        .mode = (int)c->args[settings].i,
                        .padding = (int)c->args[settings + 1].i,
                        .align = c->args[settings + 2].b,
                        .x = x,
                        .grid = grid,
                        .y = y};

    for (unsigned d = 0; d < s.dims; d++) {
        s.in[d] = m->size[2 + d];
        s.volume *= s.in[d];
        s.positions *= grid->meta->size[1 + d];
    }
    return s;
}

static double load(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
}

/* Receives one input of a result: its index in x's plane, its weight, and the
 * derivatives of the weight with respect to the coordinates, in the grid's
 * order. */
typedef void (*tap_fn)(void *ctx, int64_t place, double weight,
                       const double slope[3]);

/* Calls fn for all inputs within x that position p of image n uses. */
static void each_tap(const struct sampler *s, int64_t n, int64_t p, tap_fn fn,
                     void *ctx)
{
    struct pst_grid_taps t[3] = {{.n = 1, .weight = {1.0}},
                                 {.n = 1, .weight = {1.0}},
                                 {.n = 1, .weight = {1.0}}};
    unsigned i[3] = {0};

    for (unsigned d = 0; d < s->dims; d++)
        pst_grid_taps(
            s->mode, s->padding, s->align,
            s->grid->meta->dtype == PST_F64 ? 0 : s->dims, s->in[d],
            load(s->grid, (n * s->positions + p) * s->dims + (s->dims - 1 - d)),
            &t[d]);
    for (i[0] = 0; i[0] < t[0].n; i[0]++)
        for (i[1] = 0; i[1] < t[1].n; i[1]++)
            for (i[2] = 0; i[2] < t[2].n; i[2]++) {
                double weight = 1.0, slope[3] = {1.0, 1.0, 1.0};
                int64_t place = 0;
                bool inside = true;

                for (unsigned d = 0; d < s->dims; d++) {
                    const int64_t at = t[d].at[i[d]];

                    inside = inside && at >= 0;
                    place = place * s->in[d] + at;
                    weight *= t[d].weight[i[d]];
                    for (unsigned e = 0; e < s->dims; e++)
                        slope[s->dims - 1 - e] *=
                            e == d ? t[d].slope[i[d]] : t[d].weight[i[d]];
                }
                if (inside)
                    fn(ctx, place, weight, slope);
            }
}

struct walk {
    const struct sampler *s;
    int64_t n, p;
    int64_t channel;
    double sum, by[3];
    double *to; /* the planes of image n */
};

static void add_value(void *ctx, int64_t place, double weight,
                      const double slope[3])
{
    struct walk *w = ctx;

    (void)slope;
    w->sum +=
        weight *
        load(w->s->x, (w->n * w->s->c + w->channel) * w->s->volume + place);
}

static void sampler_ref(const struct pst_call *c)
{
    const struct sampler s = describe(c, &c->in[0], &c->in[1], &c->out[0], 2);
    struct walk w = {.s = &s};

    for (w.n = 0; w.n < s.n; w.n++)
        for (w.channel = 0; w.channel < s.c; w.channel++)
            for (w.p = 0; w.p < s.positions; w.p++) {
                w.sum = 0.0;
                each_tap(&s, w.n, w.p, add_value, &w);
                pst_store_f64(c->out[0].meta->dtype, c->out[0].data,
                              (w.n * s.c + w.channel) * s.positions + w.p,
                              w.sum);
            }
}

static double gradient_at(const struct walk *w, int64_t channel)
{
    return load(w->s->y, (w->n * w->s->c + channel) * w->s->positions + w->p);
}

static void add_to_input(void *ctx, int64_t place, double weight,
                         const double slope[3])
{
    struct walk *w = ctx;

    (void)slope;
    for (int64_t k = 0; k < w->s->c; k++)
        w->to[k * w->s->volume + place] += weight * gradient_at(w, k);
}

static size_t input_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_meta *x = c->out[0].meta;

    (void)threads;
    return x->size[0] == 0
               ? 0
               : (size_t)(pst_meta_numel(x) / x->size[0]) * sizeof(double);
}

static void input_ref(const struct pst_call *c)
{
    const struct sampler s = describe(c, &c->out[0], &c->in[2], &c->in[0], 3);
    struct walk w = {.s = &s, .to = c->scratch};
    const int64_t planes = s.c * s.volume;

    for (w.n = 0; w.n < s.n; w.n++) {
        memset(w.to, 0, (size_t)planes * sizeof(double));
        for (w.p = 0; w.p < s.positions; w.p++)
            each_tap(&s, w.n, w.p, add_to_input, &w);
        for (int64_t i = 0; i < planes; i++)
            pst_store_f64(c->out[0].meta->dtype, c->out[0].data,
                          w.n * planes + i, w.to[i]);
    }
}

static void add_to_grid(void *ctx, int64_t place, double weight,
                        const double slope[3])
{
    struct walk *w = ctx;
    double sum = 0.0;

    (void)weight;
    for (int64_t k = 0; k < w->s->c; k++)
        sum += gradient_at(w, k) *
               load(w->s->x, (w->n * w->s->c + k) * w->s->volume + place);
    for (unsigned d = 0; d < w->s->dims; d++)
        w->by[d] += sum * slope[d];
}

static void grid_ref(const struct pst_call *c)
{
    const struct sampler s = describe(c, &c->in[1], &c->in[2], &c->in[0], 3);
    struct walk w = {.s = &s};

    for (w.n = 0; w.n < s.n; w.n++)
        for (w.p = 0; w.p < s.positions; w.p++) {
            memset(w.by, 0, sizeof(w.by));
            each_tap(&s, w.n, w.p, add_to_grid, &w);
            for (unsigned d = 0; d < s.dims; d++)
                pst_store_f64(c->out[0].meta->dtype, c->out[0].data,
                              (w.n * s.positions + w.p) * s.dims + d, w.by[d]);
        }
}

/* --- fast f32 ----------------------------------------------------------- */

#define MAX_TAPS                                                               \
    16 /* 4 along each of two dimensions, 2 along each of three                \
        */

/* The inputs of one position; computed once for all channels. */
struct taps {
    unsigned n;
    int64_t place[MAX_TAPS];
    float weight[MAX_TAPS], slope[MAX_TAPS][3];
};

static void keep_tap(void *ctx, int64_t place, double weight,
                     const double slope[3])
{
    struct taps *t = ctx;

    t->place[t->n] = place;
    t->weight[t->n] = (float)weight;
    for (unsigned d = 0; d < 3; d++)
        t->slope[t->n][d] = (float)slope[d];
    t->n++;
}

struct fast {
    struct sampler s;
    void (*at)(const struct sampler *s, int64_t n, int64_t p,
               const struct taps *t);
};

/* Collects inputs like each_tap with keep_tap, for a contiguous 2-D f32
 * grid. */
static void plane_taps(const struct sampler *s, int64_t i, struct taps *t)
{
    const float *grid = (const float *)s->grid->data + i * 2;
    struct pst_grid_taps y, x;

    pst_grid_taps(s->mode, s->padding, s->align, 2, s->in[0], (double)grid[1],
                  &y);
    pst_grid_taps(s->mode, s->padding, s->align, 2, s->in[1], (double)grid[0],
                  &x);
    t->n = 0;
    for (unsigned a = 0; a < y.n; a++)
        for (unsigned b = 0; b < x.n; b++) {
            if (y.at[a] < 0 || x.at[b] < 0)
                continue;
            t->place[t->n] = y.at[a] * s->in[1] + x.at[b];
            t->weight[t->n] = (float)(y.weight[a] * x.weight[b]);
            t->slope[t->n][0] = (float)(y.weight[a] * x.slope[b]);
            t->slope[t->n][1] = (float)(y.slope[a] * x.weight[b]);
            t->n++;
        }
}

/* Collects the inputs of position p of image n. */
static void find_taps(const struct sampler *s, int64_t n, int64_t p,
                      struct taps *t)
{
    t->n = 0;
    if (s->dims == 2)
        plane_taps(s, n * s->positions + p, t);
    else
        each_tap(s, n, p, keep_tap, t);
}

/* Pool function. A part consists of whole images, since a gradient of the input
 * adds to all elements of its image. */
static void images_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fast *f = ctx;
    const struct sampler *s = &f->s;
    int64_t n, last;

    pst_pool_share(s->n, 1, part, parts, &n, &last);
    for (; n < last; n++)
        for (int64_t p = 0; p < s->positions; p++) {
            struct taps t;

            find_taps(s, n, p, &t);
            f->at(s, n, p, &t);
        }
}

static void positions_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fast *f = ctx;
    const struct sampler *s = &f->s;
    int64_t i, last;

    pst_pool_share(s->n * s->positions, 1, part, parts, &i, &last);
    for (; i < last; i++) {
        struct taps t;

        find_taps(s, i / s->positions, i % s->positions, &t);
        f->at(s, i / s->positions, i % s->positions, &t);
    }
}

static void value_at(const struct sampler *s, int64_t n, int64_t p,
                     const struct taps *t)
{
    const float *x = (const float *)s->x->data + n * s->c * s->volume;
    float *y = (float *)s->y->data + n * s->c * s->positions + p;

    for (int64_t k = 0; k < s->c; k++, x += s->volume, y += s->positions) {
        float sum = 0.0f;

        for (unsigned i = 0; i < t->n; i++)
            sum += t->weight[i] * x[t->place[i]];
        *y = sum;
    }
}

static void input_at(const struct sampler *s, int64_t n, int64_t p,
                     const struct taps *t)
{
    float *x = (float *)s->x->data + n * s->c * s->volume;
    const float *g = (const float *)s->y->data + n * s->c * s->positions + p;

    for (int64_t k = 0; k < s->c; k++, x += s->volume, g += s->positions)
        for (unsigned i = 0; i < t->n; i++)
            x[t->place[i]] += t->weight[i] * *g;
}

static void grid_at(const struct sampler *s, int64_t n, int64_t p,
                    const struct taps *t)
{
    const float *x = (const float *)s->x->data + n * s->c * s->volume;
    const float *g = (const float *)s->y->data + n * s->c * s->positions + p;
    float sum[MAX_TAPS] = {0};
    float *to = s->by + (n * s->positions + p) * s->dims;
    double by[3] = {0};

    for (int64_t k = 0; k < s->c; k++, x += s->volume, g += s->positions)
        for (unsigned i = 0; i < t->n; i++)
            sum[i] += *g * x[t->place[i]];
    for (unsigned i = 0; i < t->n; i++)
        for (unsigned d = 0; d < s->dims; d++)
            by[d] += (double)sum[i] * (double)t->slope[i][d];
    for (unsigned d = 0; d < s->dims; d++)
        to[d] = (float)by[d];
}

static void run_part(const struct pst_call *c, pst_pool_fn part, struct fast *f)
{
    const int64_t work = f->s.n * f->s.positions;

    pst_pool_run(pst_pool_if(c->pool, work >= SERIAL), part, f);
}

static void sampler_f32(const struct pst_call *c)
{
    struct fast f = {describe(c, &c->in[0], &c->in[1], &c->out[0], 2),
                     value_at};

    run_part(c, positions_part, &f);
}

static void input_f32(const struct pst_call *c)
{
    struct fast f = {describe(c, &c->out[0], &c->in[2], &c->in[0], 3),
                     input_at};

    memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    run_part(c, images_part, &f);
}

static void grid_f32(const struct pst_call *c)
{
    struct fast f = {describe(c, &c->in[1], &c->in[2], &c->in[0], 3), grid_at};

    f.s.by = c->out[0].data;
    run_part(c, positions_part, &f);
}

/* --- operators ------------------------------------------------------------ */

static enum pst_status sampler_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;
    const struct pst_arg args[] = {
        pst_v(pst_vjp_grad(v, 0)), a[0], a[1], a[2], a[3], a[4]};

    if (pst_vjp_grad(v, 0) == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0,
                    pst_emit(&v->build, &pst_op_grid_sampler_input, args, 6));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1,
                    pst_emit(&v->build, &pst_op_grid_sampler_grid, args, 6));
    return v->build.status;
}

#define KERNEL(id, scratch_)                                                   \
    static const struct pst_kernel id##_kernels[] = {                          \
        {.name = "grid_" #id "_f32",                                           \
         .dtypes = PST_D(F32),                                                 \
         .run = id##_f32,                                                      \
         .tolerance = 1e-5},                                                   \
        {.name = "grid_" #id "_ref",                                           \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_STRIDED,                                               \
         .scratch = scratch_,                                                  \
         .run = id##_ref},                                                     \
    }
KERNEL(sampler, NULL);
KERNEL(input, input_scratch);
KERNEL(grid, NULL);

#define SETTINGS                                                               \
    "int interpolation_mode, int padding_mode, bool align_corners) -> Tensor"

const struct pst_op pst_op_grid_sampler_2d = {
    .schema = "aten::grid_sampler_2d(Tensor input, Tensor grid, " SETTINGS,
    .infer = sampler_2d_infer,
    .vjp = sampler_vjp,
};
PST_CPU_KERNELS(grid_sampler_2d, sampler_kernels);

const struct pst_op pst_op_grid_sampler_3d = {
    .schema = "aten::grid_sampler_3d(Tensor input, Tensor grid, " SETTINGS,
    .infer = sampler_3d_infer,
    .vjp = sampler_vjp,
};
PST_CPU_KERNELS(grid_sampler_3d, sampler_kernels);

const struct pst_op pst_op_grid_sampler_input = {
    .schema = "penstock::grid_sampler_input(Tensor grad_output, Tensor input, "
              "Tensor grid, " SETTINGS,
    .infer = input_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(grid_sampler_input, input_kernels);

const struct pst_op pst_op_grid_sampler_grid = {
    .schema = "penstock::grid_sampler_grid(Tensor grad_output, Tensor input, "
              "Tensor grid, " SETTINGS,
    .infer = grid_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(grid_sampler_grid, grid_kernels);

static enum pst_status by_rank(struct pst_rewrite *w)
{
    const bool deep = pst_rewrite_in(w, 0)->meta.rank == 5;

    return pst_rewrite_out(
        w, 0,
        pst_rw(w, deep ? &pst_op_grid_sampler_3d : &pst_op_grid_sampler_2d,
               w->args, 5));
}

PST_REWRITE(grid_sampler,
            "aten::grid_sampler(Tensor input, Tensor grid, " SETTINGS, by_rank);

/* --- affine grids ------------------------------------------------------- */

/* Returns the coordinates of n pixel centres in -1..1. With align, -1 and 1 are
 * the centres of the outermost pixels, else their outer edges. */
static struct pst_value *coordinates(struct pst_rewrite *w, struct pst_extent n,
                                     bool align, enum pst_dtype dtype)
{
    struct pst_build *b = w->build;
    const struct pst_arg two = pst_f(2.0), minus = pst_f(-1.0);
    const struct pst_extent steps =
        align ? pst_extent_sub(b, n, pst_extent(1)) : n;
    const struct pst_arg count = pst_rw_int(w, steps);
    struct pst_arg step = pst_f(0.0), first = pst_f(0.0);
    struct pst_value *x;

    if (!align || pst_extent_less(b, pst_extent(1), n)) {
        step = pst_extent_fold(b, "FloatTrueDiv", &two, &count,
                               pst_f(2.0 / (double)steps.value));
        first = minus;
    }
    if (!align) {
        first = pst_extent_fold(b, "FloatTrueDiv", &step, &two,
                                pst_f(step.f / 2.0));
        first = pst_extent_fold(b, "Add", &first, &minus, pst_f(first.f - 1.0));
    }
    x = pst_rw(w, &pst_op_arange,
               PST_ARGS(pst_rw_int(w, n), pst_dtype_arg(dtype)));
    x = pst_rw(w, &pst_op_mul_Scalar, PST_ARGS(pst_v(x), step));
    return pst_rw(w, &pst_op_add_Scalar, PST_ARGS(pst_v(x), first));
}

static enum pst_status affine_grid(struct pst_rewrite *w)
{
    struct pst_value *theta = pst_rewrite_in(w, 0), *parts[4], *base;
    const struct pst_arg *size = &w->args[1];
    const unsigned dims = size->n < 2 ? 0 : size->n - 2;
    const enum pst_dtype dtype = theta->meta.dtype;
    const struct pst_extent one = pst_extent(1);
    struct pst_extent space[4], out[5], flat[2] = {one, pst_extent(dims + 1)};

    if ((dims != 2 && dims != 3) || theta->meta.rank != 3 ||
        !pst_extent_is(w->build, pst_rw_size(w, theta, 0),
                       pst_extent_in(w->build, size, 0)) ||
        !pst_extent_is(w->build, pst_rw_size(w, theta, 1), pst_extent(dims)) ||
        !pst_extent_is(w->build, pst_rw_size(w, theta, 2),
                       pst_extent(dims + 1)))
        return pst_rewrite_fail(w, "the maps do not fit the size");
    for (unsigned d = 0; d < dims; d++) {
        space[d] = pst_extent_in(w->build, size, 2 + d);
        if (space[d].value < 1 || space[d].value > INT32_MAX)
            return pst_rewrite_fail(w, "the size is out of range");
        flat[0] = pst_extent_mul(w->build, flat[0], space[d]);
    }
    space[dims] = one;
    for (unsigned d = 0; d < dims; d++) {
        struct pst_extent line[4] = {one, one, one, one};

        line[d] = space[d];
        base = pst_rw_reshape(w, coordinates(w, space[d], w->args[2].b, dtype),
                              dims + 1, line);
        parts[dims - 1 - d] =
            pst_rw(w, &pst_op_expand,
                   PST_ARGS(pst_v(base), pst_rw_ints(w, space, dims + 1)));
    }
    parts[dims] = pst_rw(w, &pst_op_full,
                         PST_ARGS(pst_rw_ints(w, space, dims + 1), pst_i(1),
                                  pst_dtype_arg(dtype)));
    if (w->build->status != PST_OK)
        return w->build->status;
    base = pst_rw(w, &pst_op_cat,
                  PST_ARGS(pst_values(parts, dims + 1), pst_i(-1)));
    base = pst_rw_reshape(w, base, 2, flat);
    theta = pst_rw(w, &pst_op_transpose_int,
                   PST_ARGS(pst_v(theta), pst_i(1), pst_i(2)));
    base = pst_rw(w, &pst_op_matmul, PST_ARGS(pst_v(base), pst_v(theta)));
    out[0] = pst_extent_in(w->build, size, 0);
    for (unsigned d = 0; d < dims; d++)
        out[1 + d] = space[d];
    out[dims + 1] = pst_extent(dims);
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, base, dims + 2, out));
}

PST_REWRITE(affine_grid_generator,
            "aten::affine_grid_generator(Tensor theta, SymInt[] size, bool "
            "align_corners) -> Tensor",
            affine_grid);
