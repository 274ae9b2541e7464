/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin of the tests: an elementwise operator with two results, and one
 * that normalizes rows, with its backward as an operator. PyTorch's side is
 * tests/golden/make/make_plugin.py. Compiled with a macro, the plugin has one
 * fault:
 *
 *   OURS_WRITES_BEYOND, OURS_WRITES_INPUT, OURS_LEAVES, OURS_THREADS,
 *   OURS_FAILS, OURS_SCRATCH: kernels
 *   OURS_ABI, OURS_OLDER, OURS_SIZE, OURS_NULL, OURS_KERNELS, OURS_SCHEMA,
 *   OURS_TYPE,
 *   OURS_SPACE, OURS_TAKEN, OURS_TWICE, OURS_FORMULA, OURS_UNKNOWN,
 *   OURS_NO_TENSOR, OURS_RESULT, OURS_REFUSES, OURS_NO_GRADIENT,
 *   OURS_NO_LIST, OURS_COUNT: what it describes
 *
 * With OLD_HEADER it is the plugin of a program that was compiled with the
 * header of version 0, without ours::drop.
 */
#include "include/penstock_plugin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef OURS_VERSION
#define OURS_VERSION "1.0"
#endif

/* --- dtypes --------------------------------------------------------------- */

static double load(const DLTensor *t, int64_t i)
{
    uint32_t wide;
    float f;

    if (t->dtype.code == kDLFloat && t->dtype.bits == 64)
        return ((const double *)t->data)[i];
    if (t->dtype.code == kDLFloat)
        return ((const float *)t->data)[i];
    wide = (uint32_t)((const uint16_t *)t->data)[i] << 16; /* bf16 */
    memcpy(&f, &wide, sizeof(f));
    return f;
}

static void store(const DLTensor *t, int64_t i, double x)
{
    const float f = (float)x;
    uint32_t wide;

    if (t->dtype.code == kDLFloat && t->dtype.bits == 64) {
        ((double *)t->data)[i] = x;
    } else if (t->dtype.code == kDLFloat) {
        ((float *)t->data)[i] = f;
    } else { /* bf16, rounded half to even */
        memcpy(&wide, &f, sizeof(wide));
        wide += 0x7fff + (wide >> 16 & 1);
        ((uint16_t *)t->data)[i] = (uint16_t)(wide >> 16);
    }
}

static int64_t numel(const DLTensor *t)
{
    int64_t n = 1;

    for (int32_t d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* --- ours::gate ----------------------------------------------------------- */

/* gate(x, k) = x s, s with s = 1 / (1 + exp(-k x)) */
static void gate_piece(void *ctx, size_t begin, size_t end)
{
    const struct penstock_kernel_call *c = ctx;
    const double k = c->args[1].f;

    for (size_t i = begin; i < end; i++) {
        const double x = load(&c->in[0], (int64_t)i);
        const double s = 1.0 / (1.0 + exp(-k * x));

        store(&c->out[0], (int64_t)i, x * s);
        store(&c->out[1], (int64_t)i, s);
    }
}

static int gate(const struct penstock_kernel_call *c)
{
    const size_t n = (size_t)numel(&c->in[0]);

#ifdef OURS_FAILS
    (void)snprintf(c->reason, PENSTOCK_MAX_REASON, "the gate is stuck");
    return 7;
#endif
#ifdef OURS_WRITES_INPUT
    store(&c->in[0], 0, load(&c->in[0], 0) + 1.0);
#endif
#ifdef OURS_LEAVES
    c->parallel_for(c, n - 1, gate_piece, (void *)c);
    return 0;
#endif
    c->parallel_for(c, n, gate_piece, (void *)c);
#ifdef OURS_WRITES_BEYOND
    ((char *)c->out[1].data)[n * (c->out[1].dtype.bits / 8)] = 1;
#endif
    return 0;
}

/* --- ours::standardize ---------------------------------------------------- */

/* Returns the size of the last n dimensions, which `dims` lists in any order;
 * 0: they are not the last ones. */
static int64_t row_of(const int64_t *shape, int32_t ndim, const int64_t *dims,
                      size_t n)
{
    int64_t size = 1;

    for (size_t i = 0; i < n; i++) {
        const int64_t d = dims[i] < 0 ? dims[i] + ndim : dims[i];

        if (d < ndim - (int64_t)n || d >= ndim)
            return 0;
        size *= shape[d];
    }
    return size;
}

struct rows {
    const struct penstock_kernel_call *call;
    const DLTensor *x, *grad;
    int64_t size;
    double eps;
    double *means; /* scratch: one for each row */
};

static struct rows rows_of(const struct penstock_kernel_call *c, int32_t x)
{
    struct rows r = {c, &c->in[x], NULL, 0, c->args[x + 2].f, c->scratch};

    r.size =
        row_of(r.x->shape, r.x->ndim, c->args[x + 1].ints, c->args[x + 1].n);
    return r;
}

/* Sets mean and 1 / sqrt(variance + eps) of a row. */
static void measure(const struct rows *r, int64_t row, double *mean,
                    double *scale)
{
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < r->size; i++)
        sum += load(r->x, row * r->size + i);
    *mean = sum / (double)r->size;
    for (int64_t i = 0; i < r->size; i++) {
        const double x = load(r->x, row * r->size + i) - *mean;

        squares += x * x;
    }
    *scale = 1.0 / sqrt(squares / (double)r->size + r->eps);
}

static void standardize_piece(void *ctx, size_t begin, size_t end)
{
    const struct rows *r = ctx;

    for (size_t row = begin; row < end; row++) {
        double scale;

        measure(r, (int64_t)row, &r->means[row], &scale);
        for (int64_t i = 0; i < r->size; i++) {
            const int64_t at = (int64_t)row * r->size + i;

            store(&r->call->out[0], at,
                  (load(r->x, at) - r->means[row]) * scale);
        }
    }
}

static size_t row_bytes(const struct penstock_kernel_call *c)
{
    const DLTensor *x = &c->in[c->n_in - 1];

    return (size_t)(numel(x) / x->shape[x->ndim - 1]) * sizeof(double);
}

static int standardize(const struct penstock_kernel_call *c)
{
    struct rows r = rows_of(c, 0);

#ifdef OURS_SCRATCH
    ((char *)c->scratch)[c->scratch_bytes] = 1;
#endif
    c->parallel_for(c, (size_t)(numel(r.x) / r.size), standardize_piece, &r);
#ifdef OURS_THREADS
    { /* depends on what was in the scratch before */
        static int calls;

        store(&c->out[0], 0, ++calls);
    }
#endif
    return 0;
}

/* dx = scale (g - mean(g) - y mean(g y)) */
static void backward_piece(void *ctx, size_t begin, size_t end)
{
    const struct rows *r = ctx;

    for (size_t row = begin; row < end; row++) {
        const int64_t first = (int64_t)row * r->size;
        double mean, scale, g = 0, gy = 0;

        measure(r, (int64_t)row, &mean, &scale);
        for (int64_t i = first; i < first + r->size; i++) {
            g += load(r->grad, i);
            gy += load(r->grad, i) * (load(r->x, i) - mean) * scale;
        }
        g /= (double)r->size;
        gy /= (double)r->size;
        for (int64_t i = first; i < first + r->size; i++)
            store(&r->call->out[0], i,
                  scale * (load(r->grad, i) - g -
                           (load(r->x, i) - mean) * scale * gy));
    }
}

static int backward(const struct penstock_kernel_call *c)
{
    struct rows r = rows_of(c, 1);

    r.grad = &c->in[0];
    c->parallel_for(c, (size_t)(numel(r.x) / r.size), backward_piece, &r);
    return 0;
}

static int rows_infer(struct penstock_shapes *s)
{
    const size_t at = s->n_in - 1; /* the backward has `grad` before x */
    int64_t shape[PENSTOCK_MAX_DIMS];

    for (int32_t d = 0; d < s->in[at].ndim; d++)
        shape[d] = s->in[at].shape[d].value;
#ifdef OURS_RESULT
    s->out[0].ndim = 9;
#endif
#ifdef OURS_REFUSES
    (void)snprintf(s->reason, sizeof(s->reason), "never");
    return 1;
#endif
    if (row_of(shape, s->in[at].ndim, s->args[at + 1].ints, s->args[at + 1].n) >
        0)
        return 0;
    (void)snprintf(s->reason, sizeof(s->reason),
                   "dims must be the last dimensions");
    return 1;
}

/* --- ours::halves --------------------------------------------------------- */

/* halves(x) (B, n): the sum of both halves of a row, (B, n / 2) */
static int halves_infer(struct penstock_shapes *s)
{
    if (s->in[0].ndim != 2)
        return 1;
    s->out[0].shape[1] = s->compute(s, PENSTOCK_DIV, s->in[0].shape[1],
                                    (struct penstock_size){2, PENSTOCK_FIXED});
    return 0;
}

static int halves(const struct penstock_kernel_call *c)
{
    const DLTensor *x = &c->in[0], *y = &c->out[0];

    for (int64_t i = 0; i < y->shape[0]; i++)
        for (int64_t k = 0; k < y->shape[1]; k++) {
            const int64_t at = i * x->strides[0] + k * x->strides[1];

            store(y, i * y->shape[1] + k,
                  load(x, at) + load(x, at + y->shape[1] * x->strides[1]));
        }
    return 0;
}

static double halves_flops(const struct penstock_shapes *s)
{
    return (double)(s->out[0].shape[0].value * s->out[0].shape[1].value);
}

/* --- ours::mix, ours::spread ---------------------------------------------- */

/* mix(xs, w) = w[0] xs[0] + w[1] xs[1] + ... */
static int mix(const struct penstock_kernel_call *c)
{
    const struct penstock_arg *xs = &c->args[0];
    const int64_t n = numel(&c->out[0]);

    for (int64_t i = 0; i < n; i++) {
        double sum = 0;

        for (size_t k = 0; k < xs->n; k++)
            sum += c->args[1].floats[k] * load(&c->in[xs->first + k], i);
        store(&c->out[0], i, sum);
    }
    return 0;
}

static int mix_infer(struct penstock_shapes *s)
{
    if (s->args[0].n > 0 && s->args[0].n == s->args[1].n)
        return 0;
    (void)snprintf(s->reason, sizeof(s->reason), "as many weights as tensors");
    return 1;
}

/* spread(x, w)[k] = w[k] x */
static int spread(const struct penstock_kernel_call *c)
{
    for (size_t k = 0; k < c->n_out; k++)
        for (int64_t i = 0; i < numel(&c->out[k]); i++)
            store(&c->out[k], i, c->args[1].floats[k] * load(&c->in[0], i));
    return 0;
}

static int spread_infer(struct penstock_shapes *s)
{
    s->n_out = s->args[1].n;
#ifdef OURS_COUNT
    s->n_out = 0;
#endif
    return 0;
}

/* --- ours::drop ----------------------------------------------------------- */

#ifndef OLD_HEADER
/* Philox4x32-10 as in Salmon et al. (SC 2011). */
static void philox(uint64_t key, uint64_t high, uint64_t low, uint32_t x[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    x[0] = (uint32_t)low;
    x[1] = (uint32_t)(low >> 32);
    x[2] = (uint32_t)high;
    x[3] = (uint32_t)(high >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * x[0];
        const uint64_t b = UINT64_C(0xCD9E8D57) * x[2];
        const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b,
                               (uint32_t)(a >> 32) ^ x[3] ^ k1, (uint32_t)a};

        memcpy(x, y, sizeof(y));
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
}

/* Element i is dropped by the i-th number; four of them are in a block. */
static void drop_piece(void *ctx, size_t begin, size_t end)
{
    const struct penstock_kernel_call *c = ctx;
    const double p = c->args[1].f;

    for (size_t i = begin; i < end; i++) {
        uint32_t x[4];

        c->philox(c, i / 4, x);
        store(&c->out[0], (int64_t)i,
              x[i % 4] / 4294967296.0 < p
                  ? 0.0
                  : load(&c->in[0], (int64_t)i) / (1.0 - p));
    }
}

static int drop(const struct penstock_kernel_call *c)
{
    uint32_t known[4], x[4], y[4];

    /* The first vector of Random123's kat_vectors. */
    philox(0, 0, 0, known);
    philox(c->seed, c->subsequence, UINT64_C(5) << 32 | 7, x);
    c->philox(c, UINT64_C(5) << 32 | 7, y);
    if (known[0] != 0x6627e8d5 || known[3] != 0x9b00dbd8 ||
        memcmp(x, y, sizeof(x)) != 0)
        return 1;
    c->parallel_for(c, (size_t)numel(&c->in[0]), drop_piece, (void *)c);
    return 0;
}
#endif

/* --- the plugin ----------------------------------------------------------- */

static const DLDataType f32_f64[] = {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}};
static const DLDataType bf16[] = {{kDLBfloat, 16, 1}};

static const struct penstock_kernel gate_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, 0, NULL, gate},
    {sizeof(struct penstock_kernel), bf16, 1, 0, NULL, gate},
};
/* bf16 runs through the kernel of f32. */
static const struct penstock_kernel standardize_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, 0, row_bytes, standardize},
};
#ifdef OURS_NULL
#define BACKWARD_DTYPES NULL
#else
#define BACKWARD_DTYPES f32_f64
#endif
static const struct penstock_kernel backward_kernels[] = {
    {sizeof(struct penstock_kernel), BACKWARD_DTYPES, 2, 0, NULL, backward},
};
static const struct penstock_kernel halves_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, PENSTOCK_STRIDED, NULL,
     halves},
};

static const struct penstock_kernel mix_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, 0, NULL, mix},
};
static const struct penstock_kernel spread_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, 0, NULL, spread},
};

#define OP(schema, infer, gradient, kernels, flops)                            \
    {                                                                          \
        sizeof(struct penstock_op), schema, infer, gradient, kernels,          \
            sizeof(kernels) / sizeof((kernels)[0]), flops                      \
    }
#ifdef OURS_NO_LIST
#define MIX_GRADIENT "xs: grad"
#else
#define MIX_GRADIENT "xs: ours::spread(grad, w)"
#endif

#ifndef OLD_HEADER
static const struct penstock_kernel drop_kernels[] = {
    {sizeof(struct penstock_kernel), f32_f64, 2, 0, NULL, drop},
};
#endif

#if defined(OURS_FORMULA)
#define GATE_GRADIENT "x: grad * (result1"
#elif defined(OURS_UNKNOWN)
#define GATE_GRADIENT "x: ours::gate_backward(grad, x, k)"
#elif defined(OURS_NO_TENSOR)
#define GATE_GRADIENT "k: grad"
#elif defined(OURS_NO_GRADIENT)
#define GATE_GRADIENT NULL
#else
#define GATE_GRADIENT                                                          \
    "derivative = k * result1 * (1 - result1); "                               \
    "x: grad * (result1 + x * derivative) + grad1 * derivative"
#endif

#if defined(OURS_SCHEMA)
#define GATE "ours::gate(Tensor x, float k=1.0) -> (Tensor, Tensor"
#elif defined(OURS_TYPE)
#define GATE "ours::gate(Tensor(a!) x, float k=1.0) -> (Tensor, Tensor)"
#elif defined(OURS_SPACE)
#define GATE "theirs::gate(Tensor x, float k=1.0) -> (Tensor, Tensor)"
#else
#define GATE "ours::gate(Tensor x, float k=1.0) -> (Tensor, Tensor)"
#endif

static const struct penstock_op ops[] = {
    OP(GATE, NULL, GATE_GRADIENT, gate_kernels, NULL),
    OP("ours::standardize(Tensor x, int[] dims, float eps=1e-05) -> Tensor",
       rows_infer, "x: ours::standardize_backward(grad, x, dims, eps)",
       standardize_kernels, NULL),
    OP("ours::standardize_backward(Tensor grad, Tensor x, int[] dims, float "
       "eps) -> Tensor",
       rows_infer, NULL, backward_kernels, NULL),
    OP("ours::halves(Tensor x) -> Tensor", halves_infer,
       "x: cat([grad, grad], 1)", halves_kernels, halves_flops),
    OP("ours::mix(Tensor[] xs, float[] w) -> Tensor", mix_infer, MIX_GRADIENT,
       mix_kernels, NULL),
    OP("ours::spread(Tensor x, float[] w) -> Tensor[]", spread_infer,
       "x: ours::mix(grads, w)", spread_kernels, NULL),
#ifndef OLD_HEADER
    {sizeof(struct penstock_op), "ours::drop(Tensor x, float p) -> Tensor",
     NULL, "x: ours::drop(grad, p)", drop_kernels, 1, NULL, PENSTOCK_RANDOM},
#endif
#ifdef OURS_TWICE
    OP("ours::halves(Tensor x) -> Tensor", NULL, NULL, halves_kernels, NULL),
#endif
};

const struct penstock_plugin *penstock_plugin(void)
{
    static const struct penstock_plugin plugin = {
#ifdef OURS_SIZE
        sizeof(struct penstock_plugin) - 8,
#else
        sizeof(struct penstock_plugin),
#endif
#if defined(OURS_ABI)
        PENSTOCK_PLUGIN_ABI + 1,
#elif defined(OURS_OLDER)
        PENSTOCK_PLUGIN_ABI - 1,
#else
        PENSTOCK_PLUGIN_ABI,
#endif
#ifdef OURS_TAKEN
        "aten",
#else
        "ours",
#endif
        OURS_VERSION,
        ops,
#ifdef OURS_KERNELS
        0,
#else
        sizeof(ops) / sizeof(ops[0]),
#endif
    };

    return &plugin;
}
