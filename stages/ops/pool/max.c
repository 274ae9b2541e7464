// SPDX-License-Identifier: Apache-2.0
/* Max pools (plain, adaptive and fractional), which return the maximum of each
 * window and its index in the plane. The first of equal elements wins; a NaN
 * wins over all numbers, and the last NaN over other NaNs. The gradient is
 * added at the indices: scatter_add over planes. */
#include "stages/ops/pool/max.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"
#include "stages/ops/pool/extent.h"

#include <math.h>
#include <string.h>

/* The inputs start, start + step, ... (`count` of them) of one result along one
 * dimension. */
struct window {
    int64_t start, count, step;
};

/* Returns the window of result o along spatial dimension d; only fractional
 * pools use `plane`. */
typedef struct window (*window_fn)(const struct pst_max_pool *p, int64_t plane,
                                   unsigned d, int64_t o);

static int64_t list_entry(const struct pst_arg *list, unsigned d)
{
    return list->ints[list->n == 1 ? 0 : d];
}

/* --- windows ------------------------------------------------------------ */

/* arguments of max_pool */
enum { KERNEL = 1, STRIDE, PADDING, DILATION, CEIL };

static int64_t stride_of(const struct pst_arg *args, unsigned d)
{
    return list_entry(args[STRIDE].n > 0 ? &args[STRIDE] : &args[KERNEL], d);
}

void pst_max_pool_taps(const struct pst_max_pool *p, unsigned d,
                       struct pst_max_taps *ret)
{
    const struct pst_arg *args = p->call->args;

    *ret = (struct pst_max_taps){.size = list_entry(&args[KERNEL], d),
                                 .stride = stride_of(args, d),
                                 .pad = list_entry(&args[PADDING], d),
                                 .dil = list_entry(&args[DILATION], d)};
}

static struct window pool_window(const struct pst_max_pool *p, int64_t plane,
                                 unsigned d, int64_t o)
{
    const struct pst_arg *args = p->call->args;
    const int64_t n = p->in[PST_SPACE - p->dims + d];
    const int64_t dil = list_entry(&args[DILATION], d);
    struct window w = {.start = o * stride_of(args, d) -
                                list_entry(&args[PADDING], d),
                       .step = dil};
    int64_t end = w.start + (list_entry(&args[KERNEL], d) - 1) * dil + 1;

    (void)plane;
    end = PST_MIN(end, n);
    if (w.start < 0)
        w.start += (-w.start + dil - 1) / dil * dil;
    w.count = end > w.start ? (end - w.start - 1) / dil + 1 : 0;
    return w;
}

static struct window adaptive_window(const struct pst_max_pool *p,
                                     int64_t plane, unsigned d, int64_t o)
{
    const unsigned e = PST_SPACE - p->dims + d;
    const int64_t n = p->in[e], m = p->out[e];
    struct window w = {.start = o * n / m, .step = 1};

    (void)plane;
    w.count = ((o + 1) * n + m - 1) / m - w.start;
    return w;
}

/* The random samples of a plane shift its windows; in 2-D they are stored in
 * reverse order of the dimensions. */
static struct window fractional_window(const struct pst_max_pool *p,
                                       int64_t plane, unsigned d, int64_t o)
{
    const struct pst_operand *r = &p->call->in[1];
    const unsigned e = PST_SPACE - p->dims + d;
    const int64_t k = list_entry(&p->call->args[2], d);
    const unsigned at = p->dims == 2 ? 1 - d : d;
    const double given =
        pst_load_f64(r->meta->dtype, r->data,
                     pst_meta_offset(r->meta, plane * (int64_t)p->dims + at));
    const double sample = given > 0.0 ? PST_MIN(given, 1.0) : 0.0;
    struct window w = {.count = k, .step = 1};
    double alpha;

    if (o == p->out[e] - 1) {
        w.start = p->in[e] - k;
        return w;
    }
    alpha = (double)(p->in[e] - k) / (double)(p->out[e] - 1);
    if (r->meta->dtype != PST_F64) {
        const float a = (float)alpha, s = (float)sample;

        w.start = (int64_t)(((float)o + s) * a) - (int64_t)(s * a);
    } else {
        w.start =
            (int64_t)(((double)o + sample) * alpha) - (int64_t)(sample * alpha);
    }
    w.start = PST_MAX(PST_MIN(w.start, p->in[e] - k), 0);
    return w;
}

/* --- maxima ------------------------------------------------------------- */

static int64_t volume(const int64_t size[PST_SPACE])
{
    return size[0] * size[1] * size[2];
}

struct pst_max_pool pst_max_pool_of(const struct pst_call *c)
{
    struct pst_max_pool p = {.call = c, .planes = 1};
    const struct pst_meta *x = c->in[0].meta, *y = c->out[0].meta;

    p.dims = c->args[1].kind == PST_ARG_INTS ? c->args[1].n : c->args[2].n;
    for (unsigned d = 0; d < PST_SPACE; d++)
        p.in[d] = p.out[d] = 1;
    for (unsigned d = 0; d < x->rank; d++) {
        if (d + p.dims < x->rank) {
            p.planes *= x->size[d];
            continue;
        }
        p.in[PST_SPACE + d - x->rank] = x->size[d];
        p.out[PST_SPACE + d - x->rank] = y->size[d];
    }
    return p;
}

/* The maximum so far (f for floats, i for integers) and its index `at`; any:
 * false before the first element. */
struct best {
    double f;
    int64_t i, at;
    bool any;
};

static void find_max(const struct pst_operand *x, int64_t first, int64_t place,
                     struct best *best)
{
    const int64_t at = pst_meta_offset(x->meta, first + place);

    if (pst_dtype_kind(x->meta->dtype) == PST_KIND_FLOAT) {
        const double v = pst_load_f64(x->meta->dtype, x->data, at);

        if (!best->any || v > best->f || isnan(v)) {
            best->f = v;
            best->at = place;
        }
    } else {
        const int64_t v = pst_load_i64(x->meta->dtype, x->data, at);

        if (!best->any || v > best->i) {
            best->i = v;
            best->at = place;
        }
    }
    best->any = true;
}

static void store_best(const struct pst_call *c, int64_t i,
                       const struct best *best)
{
    struct pst_operand *y = &c->out[0];

    if (pst_dtype_kind(y->meta->dtype) == PST_KIND_FLOAT)
        pst_store_f64(y->meta->dtype, y->data, i, best->f);
    else
        pst_store_i64(y->meta->dtype, y->data, i, best->i);
    ((int64_t *)c->out[1].data)[i] = best->at;
}

/* Writes the windows of result o along all dimensions. */
static void windows_of(const struct pst_max_pool *p, window_fn window,
                       int64_t plane, const int64_t o[PST_SPACE],
                       struct window w[PST_SPACE])
{
    for (unsigned d = 0; d < PST_SPACE; d++)
        w[d] = (struct window){0, 1, 1};
    for (unsigned d = 0; d < p->dims; d++)
        w[PST_SPACE - p->dims + d] =
            window(p, plane, d, o[PST_SPACE - p->dims + d]);
}

static void run_ref(const struct pst_call *c, window_fn window)
{
    const struct pst_max_pool p = pst_max_pool_of(c);
    const int64_t n_in = volume(p.in), n_out = volume(p.out);
    struct window w[PST_SPACE];

    for (int64_t i = 0; i < p.planes * n_out; i++) {
        const int64_t r = i % n_out, plane = i / n_out;
        const int64_t o[PST_SPACE] = {r / p.out[2] / p.out[1],
                                      r / p.out[2] % p.out[1], r % p.out[2]};
        struct best best = {.f = -INFINITY, .i = INT64_MIN};

        windows_of(&p, window, plane, o, w);
        for (int64_t a = 0; a < w[0].count; a++)
            for (int64_t b = 0; b < w[1].count; b++)
                for (int64_t k = 0; k < w[2].count; k++)
                    find_max(&c->in[0], plane * n_in,
                             ((w[0].start + a * w[0].step) * p.in[1] +
                              w[1].start + b * w[1].step) *
                                     p.in[2] +
                                 w[2].start + k * w[2].step,
                             &best);
        store_best(c, i, &best);
    }
}

struct job {
    struct pst_max_pool p;
    window_fn window;
    pst_max_tap_fn tap;
};

static void line_f32(const struct job *j, int64_t plane, int64_t o0, int64_t o1)
{
    const struct pst_max_pool *p = &j->p;
    const float *x = (const float *)p->call->in[0].data + plane * volume(p->in);
    const int64_t first =
        plane * volume(p->out) + (o0 * p->out[1] + o1) * p->out[2];
    float *y = (float *)p->call->out[0].data + first;
    int64_t *at = (int64_t *)p->call->out[1].data + first;

    for (int64_t o2 = 0; o2 < p->out[2]; o2++) {
        const int64_t o[PST_SPACE] = {o0, o1, o2};
        struct window w[PST_SPACE];
        int64_t where = -1;
        float most = -INFINITY;

        windows_of(p, j->window, plane, o, w);
        for (int64_t a = 0; a < w[0].count; a++)
            for (int64_t b = 0; b < w[1].count; b++) {
                int64_t place = ((w[0].start + a * w[0].step) * p->in[1] +
                                 w[1].start + b * w[1].step) *
                                    p->in[2] +
                                w[2].start;

                for (int64_t k = 0; k < w[2].count; k++, place += w[2].step)
                    if (where < 0 || x[place] > most || isnan(x[place])) {
                        most = x[place];
                        where = place;
                    }
            }
        y[o2] = most;
        at[o2] = PST_MAX(where, 0); /* a window of padding alone has index 0 */
    }
}

/* All windows of max_pool have the same step and size, so a line of results is
 * computed together: element k of all its windows, then element k + 1. */
#define BLOCK 256 /* results of a line at a time */

static void block_f32(const struct job *j, const struct window w[2],
                      const float *x, int64_t begin, int64_t n, float *best,
                      int32_t *at)
{
    const struct pst_max_pool *p = &j->p;
    const struct pst_arg *args = p->call->args;
    const unsigned d = p->dims - 1;
    const int64_t step = stride_of(args, d), width = p->in[2];

    for (int64_t i = 0; i < n; i++) {
        best[i] = -INFINITY;
        at[i] = -1;
    }
    for (int64_t a = 0; a < w[0].count; a++)
        for (int64_t b = 0; b < w[1].count; b++)
            for (int64_t k = 0; k < list_entry(&args[KERNEL], d); k++) {
                const int64_t first = k * list_entry(&args[DILATION], d) -
                                      list_entry(&args[PADDING], d);
                const int64_t low = first < 0 ? (-first + step - 1) / step : 0;
                const int64_t high =
                    first >= width ? 0 : (width - 1 - first) / step + 1;
                const int64_t from = PST_MAX(low, begin);
                const int64_t place = ((w[0].start + a * w[0].step) * p->in[1] +
                                       w[1].start + b * w[1].step) *
                                          width +
                                      from * step + first;

                if (from < PST_MIN(high, begin + n))
                    j->tap(PST_MIN(high, begin + n) - from, step, x + place,
                           (int32_t)place, best + from - begin,
                           at + from - begin);
            }
}

static void even_line_f32(const struct job *j, int64_t plane, int64_t o0,
                          int64_t o1)
{
    const struct pst_max_pool *p = &j->p;
    const float *x = (const float *)p->call->in[0].data + plane * volume(p->in);
    const int64_t first =
        plane * volume(p->out) + (o0 * p->out[1] + o1) * p->out[2];
    float *y = (float *)p->call->out[0].data + first;
    int64_t *to = (int64_t *)p->call->out[1].data + first;
    const int64_t o[PST_SPACE] = {o0, o1, 0};
    struct window w[PST_SPACE];

    windows_of(p, j->window, plane, o, w);
    for (int64_t i = 0; i < p->out[2]; i += BLOCK) {
        const int64_t n = PST_MIN(BLOCK, p->out[2] - i);
        int32_t at[BLOCK];

        block_f32(j, w, x, i, n, y + i, at);
        for (int64_t k = 0; k < n; k++)
            to[i + k] = PST_MAX(at[k], 0);
    }
}

static void planes_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const bool even = j->window == pool_window && volume(j->p.in) < INT32_MAX;
    int64_t i, end;

    pst_pool_share(j->p.planes, 1, part, parts, &i, &end);
    for (; i < end; i++)
        for (int64_t o0 = 0; o0 < j->p.out[0]; o0++)
            for (int64_t o1 = 0; o1 < j->p.out[1]; o1++)
                (even ? even_line_f32 : line_f32)(j, i, o0, o1);
}

static void run_f32(const struct pst_call *c, window_fn window,
                    pst_max_tap_fn tap)
{
    struct job job = {pst_max_pool_of(c), window, tap};

    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        planes_part, &job);
}

/* --- inference ---------------------------------------------------------- */

static enum pst_status space_of(const struct pst_infer *c, unsigned dims,
                                const struct pst_meta **x)
{
    enum pst_status status = pst_infer_tensor(c, 0, x);
    char text[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (dims < 1 || dims > PST_SPACE || (*x)->rank < dims ||
        (*x)->dtype == PST_BOOL)
        return pst_infer_fail(c, "%s has no %u dimensions of space",
                              pst_meta_text(*x, text), dims);
    for (unsigned d = 0; d < dims; d++)
        if ((*x)->size[(*x)->rank - dims + d] > PST_POOL_MAX)
            return pst_infer_fail(c, "sizes are out of range");
    return PST_OK;
}

/* Sets the metas of the values and of their indices. */
static enum pst_status set_both(struct pst_infer *c, const struct pst_meta *y)
{
    enum pst_status status = pst_infer_set_like(c, 0, y->dtype, y);

    return status == PST_OK ? pst_infer_set_like(c, 1, PST_I64, y) : status;
}

static enum pst_status pool_infer(struct pst_infer *c)
{
    const struct pst_arg *args = c->args;
    const unsigned dims = args[KERNEL].n;
    const struct pst_meta *x;
    struct pst_meta y;
    enum pst_status status = space_of(c, dims, &x);

    if (status == PST_OK)
        status = pst_pool_check_list(c, KERNEL, dims, 1);
    if (status == PST_OK && args[STRIDE].n > 0)
        status = pst_pool_check_list(c, STRIDE, dims, 1);
    if (status == PST_OK)
        status = pst_pool_check_list(c, PADDING, dims, 0);
    if (status == PST_OK)
        status = pst_pool_check_list(c, DILATION, dims, 1);
    if (status != PST_OK)
        return status;
    y = *x;
    for (unsigned d = 0; d < dims; d++) {
        int64_t *n = &y.size[x->rank - dims + d];
        const int64_t k = list_entry(&args[KERNEL], d);
        const int64_t pad = list_entry(&args[PADDING], d);
        const int64_t dil = list_entry(&args[DILATION], d);

        if (pad * 2 > (k - 1) * dil + 1)
            return pst_infer_fail(c, "the padding is larger than half the "
                                     "kernel");
        *n = pst_pool_size(*n, k, stride_of(args, d), pad, dil, args[CEIL].b);
        if (*n < 1)
            return pst_infer_fail(c, "the kernel does not fit into the input");
    }
    return set_both(c, &y);
}

static enum pst_status adaptive_infer(struct pst_infer *c)
{
    const unsigned dims = c->args[1].n;
    const struct pst_meta *x;
    struct pst_meta y;
    enum pst_status status = space_of(c, dims, &x);

    if (status == PST_OK)
        status = pst_pool_check_list(c, 1, dims, 0);
    if (status != PST_OK)
        return status;
    y = *x;
    for (unsigned d = 0; d < dims; d++) {
        if (x->size[x->rank - dims + d] < 1)
            return pst_infer_fail(c, "the input is empty");
        y.size[x->rank - dims + d] = list_entry(&c->args[1], d);
    }
    return set_both(c, &y);
}

static enum pst_status fractional_infer(struct pst_infer *c)
{
    const unsigned dims = c->args[2].n;
    const struct pst_meta *x, *r;
    struct pst_meta y;
    int64_t planes = 1;
    enum pst_status status = space_of(c, dims, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &r);
    if (status == PST_OK)
        status = pst_pool_check_list(c, 2, dims, 1);
    if (status == PST_OK)
        status = pst_pool_check_list(c, 3, dims, 1);
    if (status != PST_OK)
        return status;
    y = *x;
    for (unsigned d = 0; d < x->rank - dims; d++)
        planes *= x->size[d];
    if (pst_meta_numel(r) != planes * (int64_t)dims ||
        pst_dtype_kind(r->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "the samples do not fit");
    for (unsigned d = 0; d < dims; d++) {
        int64_t *n = &y.size[x->rank - dims + d];

        if (list_entry(&c->args[3], d) + list_entry(&c->args[2], d) - 1 > *n)
            return pst_infer_fail(c, "the kernel does not fit into the input");
        *n = list_entry(&c->args[3], d);
    }
    return set_both(c, &y);
}

/* --- gradient ----------------------------------------------------------- */

/* The gradient of x is g added to zeros, at the indices in each plane. */
static enum pst_status max_vjp(struct pst_vjp *v, unsigned dims)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    struct pst_value *g = pst_vjp_grad(v, 0), *zeros;
    const unsigned lead = x->rank - dims;
    int64_t size[PST_MAX_RANK];
    struct pst_meta flat = {.dtype = x->dtype, .rank = lead + 1};

    if (g == NULL || !pst_vjp_needs(v, 0))
        return v->build.status;
    flat.size[lead] = 1;
    for (unsigned d = 0; d < x->rank; d++)
        if (d < lead)
            size[d] = flat.size[d] = x->size[d];
        else
            flat.size[lead] *= x->size[d];
    size[lead] = 1;
    for (unsigned d = lead; d < x->rank; d++)
        size[lead] *= g->meta.size[d];
    zeros = pst_vjp_full(v, &flat, 0.0);
    g = pst_vjp_emit(
        v, &pst_op_scatter_add,
        PST_ARGS(pst_v(zeros), pst_i(lead),
                 pst_v(pst_vjp_reshape(v, pst_vjp_out(v, 1), lead + 1, size)),
                 pst_v(pst_vjp_reshape(v, g, lead + 1, size))));
    return pst_vjp_set(v, 0, pst_vjp_reshape_as(v, g, x));
}

static enum pst_status pool_vjp(struct pst_vjp *v)
{
    return max_vjp(v, v->node->args[1].n);
}

static enum pst_status fractional_vjp(struct pst_vjp *v)
{
    return max_vjp(v, v->node->args[2].n);
}

/* --- operators ------------------------------------------------------------ */

#define RUN_SET(id, suffix)                                                    \
    static void id##_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        run_f32(c, id##_window, pst_simd_max_tap_##suffix);                    \
    }
#define KERNELS(id)                                                            \
    RUN_SET(id, any)                                                           \
    PST_SIMD_IF_AVX2(RUN_SET(id, avx2))                                        \
    PST_SIMD_IF_AVX512(RUN_SET(id, avx512))                                    \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        run_ref(c, id##_window);                                               \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS("max_" #id "_f32", id##_f32, PST_D(F32), 0, NULL, NULL,  \
                      0),                                                      \
        {.name = "max_" #id "_ref",                                            \
         .dtypes = PST_D_ANY,                                                  \
         .flags = PST_K_STRIDED,                                               \
         .run = id##_ref},                                                     \
    }
KERNELS(pool);
KERNELS(adaptive);
KERNELS(fractional);

const struct pst_op pst_op_max_pool = {
    .schema = "penstock::max_pool(Tensor self, int[] kernel_size, int[] "
              "stride, int[] padding, int[] dilation, bool ceil_mode) -> "
              "(Tensor, Tensor)",
    .infer = pool_infer,
    .vjp = pool_vjp,
};
PST_CPU_KERNELS(max_pool, pool_kernels);

const struct pst_op pst_op_adaptive_max_pool = {
    .schema = "penstock::adaptive_max_pool(Tensor self, int[] output_size) -> "
              "(Tensor, Tensor)",
    .infer = adaptive_infer,
    .vjp = pool_vjp,
};
PST_CPU_KERNELS(adaptive_max_pool, adaptive_kernels);

const struct pst_op pst_op_fractional_max_pool = {
    .schema = "penstock::fractional_max_pool(Tensor self, Tensor "
              "random_samples, int[] kernel_size, int[] output_size) -> "
              "(Tensor, Tensor)",
    .infer = fractional_infer,
    .vjp = fractional_vjp,
};
PST_CPU_KERNELS(fractional_max_pool, fractional_kernels);
