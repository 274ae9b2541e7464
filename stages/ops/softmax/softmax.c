// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"

#include <math.h>

/* --- shapes -------------------------------------------------------------- */

static enum pst_status softmax_infer(struct pst_infer *c, enum pst_dtype dtype)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "not defined for %s", pst_dtype_name(dtype));
    return pst_infer_set_like(c, 0, dtype, x);
}

/* softmax(self, dim, dtype=None) converts to dtype first. */
static enum pst_status softmax_int_infer(struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    return softmax_infer(c,
                         pst_infer_dtype(c, 2, x != NULL ? x->dtype : PST_F32));
}

/* Infers _softmax(self, dim, half_to_float). */
static enum pst_status softmax_half_infer(struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    return softmax_infer(c, x == NULL || c->args[2].b ? PST_F32 : x->dtype);
}

/* Infers backward(grad_output, output, dim). */
static enum pst_status backward_infer(struct pst_infer *c)
{
    const struct pst_meta *g, *y;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &y);
    if (status == PST_OK && !pst_meta_same(g, y))
        status = pst_infer_fail(c, "gradient and output differ");
    if (status == PST_OK)
        status = pst_infer_dim(c, 2, y, &dim);
    return status != PST_OK ? status : pst_infer_set_like(c, 0, g->dtype, g);
}

struct pst_softmax_runs pst_softmax_runs_of(const struct pst_meta *x,
                                            int64_t dim)
{
    const int d = pst_meta_dim(x, dim);
    struct pst_softmax_runs r = {1, 1, 1};

    for (int i = 0; i < (int)x->rank; i++)
        *(i < d ? &r.outer : i == d ? &r.n : &r.inner) *= x->size[i];
    return r;
}

/* --- reference ---------------------------------------------------------- */

static double element_at(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
}

enum kind { SOFTMAX, LOG_SOFTMAX, SAFE_SOFTMAX };

static void softmax_run_ref(const struct pst_call *c, enum kind kind,
                            const struct pst_softmax_runs *r, int64_t first)
{
    const struct pst_operand *x = &c->in[0];
    struct pst_operand *y = &c->out[0];
    double max = -INFINITY, sum = 0.0;

    for (int64_t j = 0; j < r->n; j++) {
        const double v = element_at(x, first + j * r->inner);

        max = v > max || isnan(v) ? v : max;
    }
    for (int64_t j = 0; j < r->n; j++)
        sum += exp(element_at(x, first + j * r->inner) - max);
    for (int64_t j = 0; j < r->n; j++) {
        const int64_t i = first + j * r->inner;
        double v = element_at(x, i) - max;

        if (kind == SAFE_SOFTMAX && max == -INFINITY)
            v = 0.0;
        else
            v = kind == LOG_SOFTMAX ? v - log(sum) : exp(v) / sum;
        pst_store_f64(y->meta->dtype, y->data, i, v);
    }
}

static void softmax_ref(const struct pst_call *c, enum kind kind)
{
    const struct pst_softmax_runs r =
        pst_softmax_runs_of(c->in[0].meta, c->args[1].i);

    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t i = 0; i < r.inner; i++)
            softmax_run_ref(c, kind, &r, o * r.n * r.inner + i);
}

static void backward_run_ref(const struct pst_call *c, enum kind kind,
                             const struct pst_softmax_runs *r, int64_t first)
{
    const struct pst_operand *g = &c->in[0], *y = &c->in[1];
    double sum = 0.0;

    for (int64_t j = 0; j < r->n; j++) {
        const int64_t i = first + j * r->inner;

        sum +=
            element_at(g, i) * (kind == LOG_SOFTMAX ? 1.0 : element_at(y, i));
    }
    for (int64_t j = 0; j < r->n; j++) {
        const int64_t i = first + j * r->inner;
        const double d = kind == LOG_SOFTMAX
                             ? element_at(g, i) - exp(element_at(y, i)) * sum
                             : element_at(y, i) * (element_at(g, i) - sum);

        pst_store_f64(c->out[0].meta->dtype, c->out[0].data, i, d);
    }
}

static void backward_ref(const struct pst_call *c, enum kind kind)
{
    const struct pst_softmax_runs r =
        pst_softmax_runs_of(c->in[1].meta, c->args[2].i);

    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t i = 0; i < r.inner; i++)
            backward_run_ref(c, kind, &r, o * r.n * r.inner + i);
}

static void plain_ref(const struct pst_call *c)
{
    softmax_ref(c, SOFTMAX);
}

static void log_ref(const struct pst_call *c)
{
    softmax_ref(c, LOG_SOFTMAX);
}

static void safe_ref(const struct pst_call *c)
{
    softmax_ref(c, SAFE_SOFTMAX);
}

static void plain_backward_ref(const struct pst_call *c)
{
    backward_ref(c, SOFTMAX);
}

static void log_backward_ref(const struct pst_call *c)
{
    backward_ref(c, LOG_SOFTMAX);
}

/* --- fast kernels: contiguous f32 and f64 --------------------------------- */

struct job {
    struct pst_softmax_runs r;
    const struct pst_softmax_loops *loops;
    bool log;
    int64_t size; /* bytes of an element */
    /* g: gradient, or NULL for the forward operator. x: input or, with g, the
     * result of the forward operator. */
    const char *x, *g;
    char *y;
};

static void rows_part(const struct job *k, int64_t a, int64_t b)
{
    const struct pst_softmax_loops *l = k->loops;
    const int64_t rows = b - a, at = a * k->r.n * k->size;

    if (k->g != NULL)
        (k->log ? l->log_softmax_grad : l->softmax_grad)(
            rows, k->r.n, k->g + at, k->x + at, k->y + at);
    else
        (k->log ? l->log_softmax : l->softmax)(rows, k->r.n, k->x + at,
                                               k->y + at);
}

/* Processes strips a..b-1 of PST_SOFTMAX_COLS columns each. */
static void columns_part(const struct job *k, int64_t strips, int64_t a,
                         int64_t b)
{
    const struct pst_softmax_runs *r = &k->r;

    for (int64_t i = a; i < b; i++) {
        const int64_t col = i % strips * PST_SOFTMAX_COLS;
        const int64_t at = (i / strips * r->n * r->inner + col) * k->size;
        const int64_t cols = PST_MIN(r->inner - col, PST_SOFTMAX_COLS);

        if (k->g != NULL)
            k->loops->columns_grad(r->n, cols, r->inner, k->log, k->g + at,
                                   k->x + at, k->y + at);
        else
            k->loops->columns(r->n, cols, r->inner, k->log, k->x + at,
                              k->y + at);
    }
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *k = ctx;
    const int64_t strips =
        (k->r.inner + PST_SOFTMAX_COLS - 1) / PST_SOFTMAX_COLS;
    int64_t a, b;

    pst_pool_share(k->r.outer * strips, 1, part, parts, &a, &b);
    if (k->r.inner == 1)
        rows_part(k, a, b);
    else
        columns_part(k, strips, a, b);
}

static void run(const struct pst_call *c, struct job *k, int64_t dim)
{
    k->r = pst_softmax_runs_of(c->out[0].meta, dim);
    k->y = c->out[0].data;
    k->size = (int64_t)pst_dtype_size(c->out[0].meta->dtype);
    pst_pool_run(
        pst_pool_if(c->pool, k->r.outer * k->r.n * k->r.inner >= 16384),
        run_part, k);
}

/* Computes softmax or log softmax; loops[0] are for f32, loops[1] for f64. */
static void forward(const struct pst_call *c,
                    const struct pst_softmax_loops *const *loops, bool log)
{
    const bool wide = c->out[0].meta->dtype == PST_F64;
    struct job k = {.x = c->in[0].data, .loops = loops[wide], .log = log};

    run(c, &k, c->args[1].i);
}

static void backward(const struct pst_call *c,
                     const struct pst_softmax_loops *const *loops, bool log)
{
    const bool wide = c->out[0].meta->dtype == PST_F64;
    struct job k = {.g = c->in[0].data,
                    .x = c->in[1].data,
                    .loops = loops[wide],
                    .log = log};

    run(c, &k, c->args[2].i);
}

static bool fits(const struct pst_call *c)
{
    return c->out[0].meta->dtype == c->in[0].meta->dtype;
}

#define RUN(suffix, set)                                                       \
    static const struct pst_softmax_loops *const loops_##suffix[2] = {         \
        &pst_softmax_loops_##suffix, &pst_softmax_loops_f64_##suffix};         \
    static void plain_##suffix(const struct pst_call *c)                       \
    {                                                                          \
        forward(c, loops_##suffix, false);                                     \
    }                                                                          \
    static void log_##suffix(const struct pst_call *c)                         \
    {                                                                          \
        forward(c, loops_##suffix, true);                                      \
    }                                                                          \
    static void plain_backward_##suffix(const struct pst_call *c)              \
    {                                                                          \
        backward(c, loops_##suffix, false);                                    \
    }                                                                          \
    static void log_backward_##suffix(const struct pst_call *c)                \
    {                                                                          \
        backward(c, loops_##suffix, true);                                     \
    }
PST_SIMD_EACH(RUN)

#define KERNELS(id, fn, bits)                                                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS(#id "_f32", fn, PST_D(F32), bits, fits, NULL, 1e-5),     \
        PST_SIMD_ROWS(#id "_f64", fn, PST_D(F64), bits, fits, NULL, 1e-13),    \
        {.name = #id "_ref",                                                   \
         .dtypes = PST_D_ANY,                                                  \
         .flags = PST_K_STRIDED,                                               \
         .run = fn##_ref},                                                     \
    }
#define INPLACE_ANY (PST_K_INPLACE_0 | PST_K_INPLACE_1)
KERNELS(softmax, plain, PST_K_INPLACE_0);
KERNELS(log_softmax, log, PST_K_INPLACE_0);
KERNELS(softmax_backward, plain_backward, INPLACE_ANY);
KERNELS(log_softmax_backward, log_backward, INPLACE_ANY);

static const struct pst_kernel safe_softmax_kernels[] = {
    {.name = "safe_softmax_ref",
     .dtypes = PST_D_ANY,
     .flags = PST_K_STRIDED,
     .run = safe_ref},
};

/* --- rows --------------------------------------------------------------- */

static enum pst_status backward_emit(struct pst_vjp *v, const struct pst_op *op)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *d;

    if (g == NULL || !pst_vjp_needs(v, 0))
        return v->build.status;
    d = pst_vjp_emit(
        v, op, PST_ARGS(pst_v(g), pst_v(pst_vjp_out(v, 0)), v->node->args[1]));
    return pst_vjp_set(v, 0, pst_vjp_cast(v, d, pst_vjp_in(v, 0)->meta.dtype));
}

static enum pst_status softmax_vjp(struct pst_vjp *v)
{
    return backward_emit(v, &pst_op_softmax_backward);
}

static enum pst_status log_softmax_vjp(struct pst_vjp *v)
{
    return backward_emit(v, &pst_op_log_softmax_backward);
}

const struct pst_op pst_op_softmax_int = {
    .schema = "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) "
              "-> Tensor",
    .infer = softmax_int_infer,
    .vjp = softmax_vjp,
};
PST_CPU_KERNELS(softmax_int, softmax_kernels);

const struct pst_op pst_op__softmax = {
    .schema = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> "
              "Tensor",
    .infer = softmax_half_infer,
    .vjp = softmax_vjp,
};
PST_CPU_KERNELS(_softmax, softmax_kernels);

const struct pst_op pst_op_log_softmax_int = {
    .schema = "aten::log_softmax.int(Tensor self, int dim, ScalarType? "
              "dtype=None) -> Tensor",
    .infer = softmax_int_infer,
    .vjp = log_softmax_vjp,
};
PST_CPU_KERNELS(log_softmax_int, log_softmax_kernels);

const struct pst_op pst_op__log_softmax = {
    .schema = "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> "
              "Tensor",
    .infer = softmax_half_infer,
    .vjp = log_softmax_vjp,
};
PST_CPU_KERNELS(_log_softmax, log_softmax_kernels);

/* _safe_softmax: rows of -inf give 0 instead of NaN, and have gradient 0. */
const struct pst_op pst_op__safe_softmax = {
    .schema = "aten::_safe_softmax(Tensor self, int dim, ScalarType? "
              "dtype=None) -> Tensor",
    .infer = softmax_int_infer,
    .vjp = softmax_vjp,
};
PST_CPU_KERNELS(_safe_softmax, safe_softmax_kernels);

const struct pst_op pst_op_softmax_backward = {
    .schema = "penstock::softmax_backward(Tensor grad_output, Tensor output, "
              "int dim) -> Tensor",
    .infer = backward_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(softmax_backward, softmax_backward_kernels);

const struct pst_op pst_op_log_softmax_backward = {
    .schema = "penstock::log_softmax_backward(Tensor grad_output, Tensor "
              "output, int dim) -> Tensor",
    .infer = backward_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(log_softmax_backward, log_softmax_backward_kernels);
