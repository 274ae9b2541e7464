// SPDX-License-Identifier: Apache-2.0
/* Operators that are weighted sums: average pools, adaptive average pools,
 * resizing, and their gradients, which are the transposed sums. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pool/extent.h"
#include "stages/ops/pool/resample.h"

#include <string.h>

/* Offsets of the settings from the first one. The settings follow the tensor;
 * in a gradient operator they follow argument 1, the size of the input's space.
 * For adaptive pools and resizing the first setting is the result's size. */

enum pool_arg { KERNEL, STRIDE, PADDING, CEIL, INCLUDE, DIVISOR };
enum resize_arg { SIZE, MODE, ALIGN, SCALES };

static int64_t list_entry(const struct pst_arg *list, unsigned d)
{
    return list->ints[list->n == 1 ? 0 : d];
}

/* --- axes from arguments ------------------------------------------------ */

/* Sets *ret from the settings of dimension d for an input of size `in`; also
 * sets ret->out. The arguments were checked at inference. */
typedef void (*axis_fn)(const struct pst_arg *args, unsigned d, int64_t in,
                        bool single, struct pst_axis *ret);

static void average_axis(const struct pst_arg *args, unsigned d, int64_t in,
                         bool single, struct pst_axis *ret)
{
    const bool divides = args[DIVISOR].kind == PST_ARG_INT;

    (void)single;
    *ret = (struct pst_axis){
        .kind = PST_AXIS_AVERAGE,
        .in = in,
        .k = list_entry(&args[KERNEL], d),
        .stride =
            list_entry(args[STRIDE].n > 0 ? &args[STRIDE] : &args[KERNEL], d),
        .pad = list_entry(&args[PADDING], d),
        .include_pad = args[INCLUDE].b,
        .unweighted = divides,
        .divisor = divides && d == 0 ? (double)args[DIVISOR].i : 1.0};
    ret->out =
        pst_pool_size(in, ret->k, ret->stride, ret->pad, 1, args[CEIL].b);
}

static void adaptive_axis(const struct pst_arg *args, unsigned d, int64_t in,
                          bool single, struct pst_axis *ret)
{
    (void)single;
    *ret = (struct pst_axis){
        .kind = PST_AXIS_ADAPTIVE, .in = in, .out = list_entry(&args[SIZE], d)};
}

static const struct mode {
    const char *name;
    enum pst_axis_kind kind;
} modes[] = {
    {"nearest", PST_AXIS_NEAREST},     {"nearest-exact", PST_AXIS_EXACT},
    {"linear", PST_AXIS_LINEAR},       {"cubic", PST_AXIS_CUBIC},
    {"linear-aa", PST_AXIS_LINEAR_AA}, {"cubic-aa", PST_AXIS_CUBIC_AA},
};

static const struct mode *find_mode(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(modes); i++)
        if (strcmp(modes[i].name, name) == 0)
            return &modes[i];
    return NULL;
}

static void resize_axis(const struct pst_arg *args, unsigned d, int64_t in,
                        bool single, struct pst_axis *ret)
{
    const enum pst_axis_kind kind = find_mode(args[MODE].s)->kind;
    const double given = args[SCALES].n > d ? args[SCALES].floats[d] : 0.0;

    *ret = (struct pst_axis){.kind = kind,
                             .in = in,
                             .out = list_entry(&args[SIZE], d),
                             .align = args[ALIGN].b};
    if (kind == PST_AXIS_NEAREST || kind == PST_AXIS_EXACT)
        single = true;
    ret->scale = pst_axis_scale(in, ret->out, ret->align, given, single);
}

/* --- checks ------------------------------------------------------------- */

/* Checks the settings, which start at schema argument `first`. */
typedef enum pst_status (*check_fn)(const struct pst_infer *c, unsigned first,
                                    unsigned dims);

static enum pst_status average_check(const struct pst_infer *c, unsigned first,
                                     unsigned dims)
{
    const struct pst_arg *args = c->args + first;
    enum pst_status status = pst_pool_check_list(c, first + KERNEL, dims, 1);

    if (status == PST_OK && args[STRIDE].n > 0)
        status = pst_pool_check_list(c, first + STRIDE, dims, 1);
    if (status == PST_OK)
        status = pst_pool_check_list(c, first + PADDING, dims, 0);
    for (unsigned d = 0; d < dims && status == PST_OK; d++)
        if (list_entry(&args[PADDING], d) * 2 > list_entry(&args[KERNEL], d))
            status = pst_infer_fail(c, "the padding is larger than half the "
                                       "kernel");
    if (status == PST_OK && args[DIVISOR].kind == PST_ARG_INT &&
        args[DIVISOR].i == 0)
        status = pst_infer_fail(c, "divides by 0");
    return status;
}

static enum pst_status adaptive_check(const struct pst_infer *c, unsigned first,
                                      unsigned dims)
{
    return pst_pool_check_list(c, first + SIZE, dims, 0);
}

static enum pst_status resize_check(const struct pst_infer *c, unsigned first,
                                    unsigned dims)
{
    const struct pst_arg *args = c->args + first;
    enum pst_status status = pst_pool_check_list(c, first + SIZE, dims, 1);

    if (status == PST_OK && find_mode(args[MODE].s) == NULL)
        status = pst_infer_fail(c, "mode \"%s\" is unknown", args[MODE].s);
    for (unsigned d = 0; d < args[SCALES].n && status == PST_OK; d++)
        if (args[SCALES].floats[d] != 0.0 &&
            !(args[SCALES].floats[d] > 1e-6 && args[SCALES].floats[d] < 1e6))
            status =
                pst_infer_fail(c, "a factor is %g", args[SCALES].floats[d]);
    return status;
}

/* Sets *ret to the number of spatial dimensions, as the first setting has
 * it. */
static enum pst_status space_of(const struct pst_infer *c, unsigned first,
                                const struct pst_meta *x, unsigned *ret)
{
    char text[PST_META_TEXT];

    *ret = c->args[first].n;
    if (*ret < 1 || *ret > PST_SPACE || x->rank < *ret)
        return pst_infer_fail(c, "%s has no %u dimensions of space",
                              pst_meta_text(x, text), *ret);
    for (unsigned d = 0; d < *ret; d++)
        if (x->size[x->rank - *ret + d] > PST_POOL_MAX)
            return pst_infer_fail(c, "sizes are out of range");
    return PST_OK;
}

static enum pst_status not_empty(const struct pst_infer *c,
                                 const struct pst_axis *a)
{
    if (a->out >= 1 && a->in >= 1)
        return PST_OK;
    if (a->kind == PST_AXIS_ADAPTIVE && a->in >= 1)
        return PST_OK;
    return pst_infer_fail(c, "%lld elements do not make %lld", (long long)a->in,
                          (long long)a->out);
}

static enum pst_status is_floating(const struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    if (x == NULL || pst_dtype_kind(x->dtype) == PST_KIND_FLOAT)
        return PST_OK; /* x is NULL: the caller reports that a tensor is missing
                        */
    return pst_infer_fail(c, "not defined for %s", pst_dtype_name(x->dtype));
}

static enum pst_status forward_infer(struct pst_infer *c, check_fn check,
                                     axis_fn axis)
{
    const struct pst_meta *x;
    struct pst_meta y;
    struct pst_axis a;
    unsigned dims;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = space_of(c, 1, x, &dims);
    if (status == PST_OK)
        status = check(c, 1, dims);
    if (status != PST_OK)
        return status;
    y = *x;
    for (unsigned d = 0; d < dims && status == PST_OK; d++) {
        int64_t *size = &y.size[x->rank - dims + d];

        axis(c->args + 1, d, *size, true, &a);
        *size = a.out;
        status = not_empty(c, &a);
    }
    return status == PST_OK ? pst_infer_set_like(c, 0, x->dtype, &y) : status;
}

static enum pst_status backward_infer(struct pst_infer *c, check_fn check,
                                      axis_fn axis)
{
    const struct pst_meta *g;
    struct pst_meta x;
    struct pst_axis a;
    unsigned dims;
    enum pst_status status = pst_infer_tensor(c, 0, &g);
    char text[PST_META_TEXT];

    if (status == PST_OK)
        status = space_of(c, 1, g, &dims);
    if (status == PST_OK)
        status = pst_pool_check_list(c, 1, dims, 0);
    if (status == PST_OK)
        status = check(c, 2, dims);
    if (status != PST_OK)
        return status;
    x = *g;
    for (unsigned d = 0; d < dims && status == PST_OK; d++) {
        int64_t *size = &x.size[g->rank - dims + d];

        axis(c->args + 2, d, c->args[1].ints[d], true, &a);
        status = not_empty(c, &a);
        if (status == PST_OK && a.out != *size)
            status = pst_infer_fail(c, "gradient %s is not of the result",
                                    pst_meta_text(g, text));
        *size = a.in;
    }
    return status == PST_OK ? pst_infer_set_like(c, 0, g->dtype, &x) : status;
}

/* --- kernels ------------------------------------------------------------ */

static struct pst_resample describe(const struct pst_call *c, bool transposed,
                                    axis_fn axis)
{
    struct pst_resample r = {.planes = 1, .accumulate = c->accumulate};
    const struct pst_arg *settings = c->args + (transposed ? 2 : 1);
    const unsigned dims = c->args[1].n;
    const struct pst_meta *m;

    r.x = transposed ? &c->out[0] : &c->in[0];
    r.y = transposed ? &c->in[0] : &c->out[0];
    m = r.x->meta;
    for (unsigned d = 0; d < m->rank - dims; d++)
        r.planes *= m->size[d];
    for (unsigned d = 0; d < PST_SPACE; d++)
        r.axis[d] = (struct pst_axis){.in = 1, .out = 1, .divisor = 1.0};
    for (unsigned d = 0; d < dims; d++)
        axis(settings, d, m->size[m->rank - dims + d], m->dtype != PST_F64,
             &r.axis[PST_SPACE - dims + d]);
    return r;
}

static enum pst_status resample_vjp(struct pst_vjp *v,
                                    const struct pst_op *adjoint,
                                    bool transposed)
{
    const struct pst_node *node = v->node;
    const struct pst_meta *m = &node->args[0].value->meta;
    const unsigned dims = node->args[1].n, n = node->schema->n_args;
    struct pst_arg args[PST_MAX_RANK + 2];

    if (pst_vjp_grad(v, 0) == NULL)
        return v->build.status;
    args[0] = pst_v(pst_vjp_grad(v, 0));
    if (transposed) {
        for (unsigned i = 2; i < n; i++)
            args[i - 1] = node->args[i];
    } else {
        args[1] = pst_ints(m->size + m->rank - dims, dims);
        for (unsigned i = 1; i < n; i++)
            args[i + 1] = node->args[i];
    }
    return pst_vjp_set(
        v, 0, pst_vjp_emit(v, adjoint, args, transposed ? n - 1 : n + 1));
}

#define RUN_SET(id, axis, back, suffix)                                        \
    static void id##_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        const struct pst_resample r = describe(c, back, axis);                 \
                                                                               \
        pst_resample_run(&r, back, c->pool, c->scratch,                        \
                         pst_simd_axpy_##suffix);                              \
    }
#define DIRECTION(id, how, back, adjoint)                                      \
    static enum pst_status id##_infer(struct pst_infer *c)                     \
    {                                                                          \
        const enum pst_status status = is_floating(c);                         \
                                                                               \
        if (status != PST_OK)                                                  \
            return status;                                                     \
        return (back ? backward_infer : forward_infer)(c, how##_check,         \
                                                       how##_axis);            \
    }                                                                          \
    static enum pst_status id##_vjp(struct pst_vjp *v)                         \
    {                                                                          \
        return resample_vjp(v, &pst_op_##adjoint, back);                       \
    }                                                                          \
    RUN_SET(id, how##_axis, back, any)                                         \
    PST_SIMD_IF_AVX2(RUN_SET(id, how##_axis, back, avx2))                      \
    PST_SIMD_IF_AVX512(RUN_SET(id, how##_axis, back, avx512))                  \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        const struct pst_resample r = describe(c, back, how##_axis);           \
                                                                               \
        pst_resample_ref(&r, back, c->scratch);                                \
    }                                                                          \
    static size_t id##_scratch(const struct pst_call *c, unsigned threads)     \
    {                                                                          \
        const struct pst_resample r = describe(c, back, how##_axis);           \
                                                                               \
        return pst_resample_scratch(&r, threads);                              \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS(#id "_f32", id##_f32, PST_D(F32), PST_K_ACCUMULATE,      \
                      NULL, id##_scratch, 1e-5),                               \
        {.name = #id "_ref",                                                   \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .scratch = id##_scratch,                                              \
         .run = id##_ref},                                                     \
    }
#define BOTH(id, how)                                                          \
    DIRECTION(id, how, false, id##_backward);                                  \
    DIRECTION(id##_backward, how, true, id)
BOTH(avg_pool, average);
BOTH(adaptive_avg_pool, adaptive);
BOTH(resize, resize);

#define ROW(id, text)                                                          \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "penstock::" #id "(Tensor " text ") -> Tensor",              \
        .infer = id##_infer,                                                   \
        .vjp = id##_vjp,                                                       \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)
#define POOL                                                                   \
    "int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool "    \
    "count_include_pad, int? divisor_override"
#define RESIZE                                                                 \
    "SymInt[] output_size, str mode, bool align_corners, float[] scales"
ROW(avg_pool, "self, " POOL);
ROW(avg_pool_backward, "grad_output, SymInt[] input_size, " POOL);
ROW(adaptive_avg_pool, "self, SymInt[] output_size");
ROW(adaptive_avg_pool_backward,
    "grad_output, SymInt[] input_size, SymInt[] output_size");
ROW(resize, "self, " RESIZE);
ROW(resize_backward, "grad_output, SymInt[] input_size, " RESIZE);

/* --- averages of integers ------------------------------------------------- */

/* The window of one element of the result along one axis. */
struct window {
    int64_t begin, end; /* clipped to the input */
    int64_t size;       /* divisor of the sum */
};

static struct window window_of(const struct pst_axis *a, int64_t o)
{
    const int64_t begin = o * a->stride - a->pad;
    const int64_t end = PST_MIN(begin + a->k, a->in + a->pad);
    struct window w = {PST_MAX(begin, 0), PST_MIN(end, a->in), end - begin};

    if (!a->include_pad)
        w.size = w.end - w.begin;
    return w;
}

/* Averages one plane of integers: sums wrap around, and quotients are
 * truncated. */
static void whole_plane(const struct pst_resample *r, const int64_t *x,
                        const struct pst_arg *divisor, int64_t *y)
{
    const struct pst_axis *a = r->axis;

    for (int64_t i = 0; i < a[0].out; i++)
        for (int64_t j = 0; j < a[1].out; j++)
            for (int64_t k = 0; k < a[2].out; k++) {
                const struct window u = window_of(&a[0], i),
                                    v = window_of(&a[1], j),
                                    w = window_of(&a[2], k);
                uint64_t sum = 0;
                int64_t by = u.size * v.size * w.size;

                for (int64_t l = u.begin; l < u.end; l++)
                    for (int64_t m = v.begin; m < v.end; m++)
                        for (int64_t n = w.begin; n < w.end; n++)
                            sum += (uint64_t)x[(l * a[1].in + m) * a[2].in + n];
                if (divisor->kind == PST_ARG_INT)
                    by = divisor->i;
                if (by == -1) /* no division: INT64_MIN / -1 overflows */
                    *y++ = (int64_t)(0 - sum);
                else /* by is 0 for an empty window, whose sum is 0 */
                    *y++ = by == 0 ? 0 : (int64_t)sum / by;
            }
}

static void avg_pool_whole_ref(const struct pst_call *c)
{
    struct pst_resample r = describe(c, false, average_axis);
    int64_t in = 1, out = 1;

    for (unsigned d = 0; d < PST_SPACE; d++) {
        r.axis[d].k = PST_MAX(r.axis[d].k, 1);
        r.axis[d].stride = PST_MAX(r.axis[d].stride, 1);
        in *= r.axis[d].in;
        out *= r.axis[d].out;
    }
    for (int64_t p = 0; p < r.planes; p++)
        whole_plane(&r, (const int64_t *)c->in[0].data + p * in,
                    &c->args[1 + DIVISOR], (int64_t *)c->out[0].data + p * out);
}

static enum pst_status avg_pool_whole_infer(struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    if (x != NULL && x->dtype != PST_I64)
        return pst_infer_fail(c, "not defined for %s",
                              pst_dtype_name(x->dtype));
    return forward_infer(c, average_check, average_axis);
}

static const struct pst_kernel avg_pool_whole_kernels[] = {
    {.name = "avg_pool_whole_ref",
     .dtypes = PST_D(I64),
     .run = avg_pool_whole_ref},
};

const struct pst_op pst_op_avg_pool_whole = {
    .schema = "penstock::avg_pool_whole(Tensor self, " POOL ") -> Tensor",
    .infer = avg_pool_whole_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(avg_pool_whole, avg_pool_whole_kernels);
