// SPDX-License-Identifier: Apache-2.0
/* Scans along one dimension, which is kept: cummax, cummin, logcumsumexp. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/reduce/lane.h"
#include "stages/ops/reduce/reduce.h"

#include <math.h>

/* Processes one lane: element i of in[0] is at first + i * inner. */
typedef void (*lane_fn)(const struct pst_call *c, int64_t first, int64_t inner,
                        int64_t n);

static void each_lane(const struct pst_call *c, const struct pst_meta *x,
                      int64_t dim, lane_fn fn)
{
    const struct pst_lane l = pst_lane_of(x, dim);

    for (int64_t k = 0; k < pst_lane_count(&l); k++)
        fn(c, pst_lane_first(&l, k, l.size), l.inner, l.size);
}

static double load(const struct pst_operand *x, int64_t at)
{
    return pst_load_f64(x->meta->dtype, x->data, at);
}

static void store(const struct pst_operand *out, int64_t at, double y)
{
    pst_store_f64(out->meta->dtype, out->data, at, y);
}

/* --- logcumsumexp --------------------------------------------------------- */

static void logcumsumexp_lane(const struct pst_call *c, int64_t first,
                              int64_t inner, int64_t n)
{
    double y = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        const double x = load(&c->in[0], first + i * inner);
        const double high = isnan(x) || x > y ? x : y, low = x > y ? y : x;

        if (isnan(x) || isnan(y))
            y = NAN;
        else if (low != -INFINITY && high != INFINITY)
            y = high + log1p(exp(low - high));
        else
            y = high;
        store(&c->out[0], first + i * inner, y);
    }
}

static void logcumsumexp_ref(const struct pst_call *c)
{
    each_lane(c, c->in[0].meta, c->args[1].i, logcumsumexp_lane);
}

/* --- cummax, cummin: the last of equal elements; NaN propagates ----------- */

static void scan_extremes(const struct pst_call *c, int64_t first,
                          int64_t inner, int64_t n, double sign)
{
    const struct pst_operand *x = &c->in[0];
    const bool whole = pst_dtype_kind(x->meta->dtype) != PST_KIND_FLOAT;
    int64_t best = 0;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i * inner, to = first + best * inner;
        bool better;

        if (whole) {
            const int64_t a = pst_load_i64(x->meta->dtype, x->data, at);
            const int64_t b = pst_load_i64(x->meta->dtype, x->data, to);

            better = sign > 0 ? a >= b : a <= b;
            best = better ? i : best;
            pst_store_i64(c->out[0].meta->dtype, c->out[0].data, at,
                          better ? a : b);
        } else {
            const double a = load(x, at), b = load(x, to);

            better = isnan(a) || (!isnan(b) && a * sign >= b * sign);
            best = better ? i : best;
            store(&c->out[0], at, better ? a : b);
        }
        ((int64_t *)c->out[1].data)[at] = best;
    }
}

static void cummax_lane(const struct pst_call *c, int64_t first, int64_t inner,
                        int64_t n)
{
    scan_extremes(c, first, inner, n, 1.0);
}

static void cummin_lane(const struct pst_call *c, int64_t first, int64_t inner,
                        int64_t n)
{
    scan_extremes(c, first, inner, n, -1.0);
}

static void cummax_ref(const struct pst_call *c)
{
    each_lane(c, c->in[0].meta, c->args[1].i, cummax_lane);
}

static void cummin_ref(const struct pst_call *c)
{
    each_lane(c, c->in[0].meta, c->args[1].i, cummin_lane);
}

/* --- rows ----------------------------------------------------------------- */

static enum pst_status check_dim(const struct pst_infer *c,
                                 const struct pst_meta **x)
{
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, x);

    return status != PST_OK ? status : pst_infer_dim(c, 1, *x, &dim);
}

static enum pst_status infer_logcumsumexp(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = check_dim(c, &x);

    return status != PST_OK
               ? status
               : pst_infer_set_like(c, 0, pst_float_type(x->dtype), x);
}

static enum pst_status infer_extremes(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = check_dim(c, &x);

    if (status == PST_OK)
        status = pst_infer_set_like(c, 0, x->dtype, x);
    return status != PST_OK ? status : pst_infer_set_like(c, 1, PST_I64, x);
}

#define ROW(id, kernel, text, how, gradient)                                   \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#kernel, PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, kernel, 0.0},         \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = text,                                                        \
        .infer = (how),                                                        \
        .vjp = (gradient) != NULL ? pst_vjp_formula : pst_vjp_none,            \
        .formula = (gradient),                                                 \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

/* The gradient is exp(self) times the reversed cumulative sum of exp(-result)
 * g, computed as logarithms, separately for positive and negative g. */
#define LOG_SUMS(sign)                                                         \
    "exp(flip(logcumsumexp(flip(log(relu(" sign                                \
    "grad)) - result, [dim]), dim), [dim]) + self)"

ROW(logcumsumexp, logcumsumexp_ref,
    "aten::logcumsumexp(Tensor self, int dim) -> Tensor", infer_logcumsumexp,
    "self: rank(self) == 0 ? grad : " LOG_SUMS("") " - " LOG_SUMS("-"));
ROW(_logcumsumexp, logcumsumexp_ref,
    "aten::_logcumsumexp(Tensor self, int dim) -> Tensor", infer_logcumsumexp,
    NULL);

#define PUT_BACK "self: scatter_add(zeros_like(self), dim, result1, grad)"
ROW(cummax, cummax_ref,
    "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    infer_extremes, PUT_BACK);
ROW(cummin, cummin_ref,
    "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    infer_extremes, PUT_BACK);
