// SPDX-License-Identifier: Apache-2.0
/* Elementary functions of one operand; their gradients are formulas. */
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Defines the reference of NAME(self); integers are converted to f32. */
#define REFERENCE(name, expr)                                                  \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, NULL)
#define SLOW(name, expr, gradient)                                             \
    REFERENCE(name, expr)                                                      \
    PST_PW_ROW(name, #name "(Tensor self) -> Tensor", pst_infer_unary_float,   \
               name, gradient)
/* Defines NAME(self) with a fast loop of that name; tol is its error against
 * the reference. */
#define FUNCTION(name, expr, tol, gradient)                                    \
    REFERENCE(name, expr)                                                      \
    PST_PW_LOOP(name, 1, 0)                                                    \
    PST_PW_FAST_ROW(name, #name "(Tensor self) -> Tensor",                     \
                    pst_infer_unary_float, name, tol, gradient)

FUNCTION(exp2, exp2(a), 5e-7, "self: grad * (result * 0.69314718055994530942)");
FUNCTION(expm1, expm1(a), 5e-7, "self: grad * (result + 1)");
FUNCTION(log2, log2(a), 5e-7, "self: grad / (self * 0.69314718055994530942)");
FUNCTION(log10, log10(a), 5e-7, "self: grad / (self * 2.30258509299404568402)");
FUNCTION(log1p, log1p(a), 5e-7, "self: grad / (self + 1)");
FUNCTION(tan, tan(a), 5e-7, "self: grad * (result * result + 1)");
FUNCTION(sinh, sinh(a), 5e-7, "self: grad * cosh(self)");
FUNCTION(cosh, cosh(a), 5e-7, "self: grad * sinh(self)");
FUNCTION(asin, asin(a), 5e-7, "self: grad * rsqrt(1 - self * self)");
FUNCTION(acos, acos(a), 5e-7, "self: grad * -rsqrt(1 - self * self)");
FUNCTION(atan, atan(a), 5e-7, "self: grad / (self * self + 1)");
FUNCTION(asinh, asinh(a), 5e-7, "self: grad * rsqrt(self * self + 1)");
FUNCTION(acosh, acosh(a), 5e-7, "self: grad * rsqrt(self * self - 1)");
FUNCTION(atanh, atanh(a), 5e-7, "self: grad / (1 - self * self)");
FUNCTION(erfc, erfc(a), 5e-7,
         "self: grad * (exp(-(self * self)) * -1.12837916709551257390)");
FUNCTION(deg2rad, a *(PI / 180.0), 2e-7, "self: grad * (pi / 180)");
FUNCTION(rad2deg, a *(180.0 / PI), 2e-7, "self: grad * (180 / pi)");

/* Returns sin(pi x) / (pi x) with pi x rounded to the dtype. */
static double sinc_at(const struct pst_pw *p, double x)
{
    const double t =
        p->compute == PST_F64 ? PI * x : (double)((float)PI * (float)x);

    return x == 0.0 ? 1.0 : sin(t) / t;
}

FUNCTION(sinc, sinc_at(p, a), 2e-7,
         "t = self * pi; square = self * self * pi;"
         "self: square == 0 ? 0 : grad * ((t * cos(t) - sin(t)) / square)");
SLOW(angle, isnan(a) ? a : a < 0.0 ? PI : 0.0, "self: 0");

/* --- rounding: integers are unchanged ------------------------------------- */

PST_PW_I64(whole_i64, 1, a)

#define ROUNDING(name, expr, gradient)                                         \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, whole_i64)                              \
    PST_PW_LOOP(name, 1, 0)                                                    \
    PST_PW_FAST_ROW(name, #name "(Tensor self) -> Tensor",                     \
                    pst_infer_same_as_0, name, 0.0, gradient)

ROUNDING(floor, floor(a), "self: 0");
ROUNDING(ceil, ceil(a), "self: 0");
ROUNDING(trunc, trunc(a), "self: 0");
ROUNDING(round, rint(a), "self: 0");
ROUNDING(frac, a - trunc(a), "self: grad");

/* Scales in the dtype of the operand, as PyTorch does, because ties depend on
 * it. */
static double round_decimals(double x, double decimals, bool f64)
{
    const double power = pow(10.0, fabs(decimals));
    const float x32 = (float)x, power32 = (float)power;

    if (f64)
        return decimals < 0 ? rint(x / power) * power : rint(x * power) / power;
    return (double)(decimals < 0 ? rintf(x32 / power32) * power32
                                 : rintf(x32 * power32) / power32);
}

PST_PW_F64(round_decimals_f64, 1,
           p->s[0] == 0.0 ? rint(a)
                          : round_decimals(a, p->s[0], p->compute == PST_F64))
PST_PW_REF_PARAMS(round_decimals, 1, 1, round_decimals_f64, whole_i64)
PST_PW_ROW(round_decimals,
           "round.decimals(Tensor self, *, int decimals) -> Tensor",
           pst_infer_same_as_0, round_decimals, "self: 0");
PST_COMPOSE(
    special_round, "special_round(Tensor self, *, int decimals=0) -> Tensor",
    "decimals == 0 ? round(self) : round.decimals(self, decimals=decimals)");

/* --- predicates ----------------------------------------------------------- */

/* Defines a predicate that is computed in the operand's dtype; `whole` is its
 * constant value for integers. */
#define ASKED(name, expr, whole)                                               \
    PST_PW_F64(name##_f64, 1, (double)(expr))                                  \
    PST_PW_I64(name##_i64, 1, whole)                                           \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        struct pst_pw p;                                                       \
                                                                               \
        pst_pw_init(&p, call, 0, 1);                                           \
        p.compute = call->in[0].meta->dtype;                                   \
        pst_pw_run(&p, name##_f64, name##_i64);                                \
    }

#define QUESTION(name, expr, whole)                                            \
    ASKED(name, expr, whole)                                                   \
    PST_PW_ROW(name, #name "(Tensor self) -> Tensor", pst_infer_unary_bool,    \
               name, NULL)
#define QUESTION_FAST(name, expr, whole)                                       \
    ASKED(name, expr, whole)                                                   \
    PST_PW_LOOP(name, 1, 0)                                                    \
    static const struct pst_kernel name##_kernels[] = {                        \
        PST_PW_ROWS_BOOL(name, pst_pw_is_question),                            \
        PST_PW_REF_KERNEL(name),                                               \
    };                                                                         \
    const struct pst_op pst_op_##name = {                                      \
        .schema = "aten::" #name "(Tensor self) -> Tensor",                    \
        .infer = pst_infer_unary_bool,                                         \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(name, name##_kernels)

QUESTION_FAST(isnan, isnan(a) != 0, 0);
QUESTION_FAST(isinf, isinf(a) != 0, 0);
QUESTION_FAST(isfinite, isfinite(a) != 0, 1);
QUESTION_FAST(isneginf, a == -INFINITY, 0);
QUESTION_FAST(isposinf, a == INFINITY, 0);
QUESTION_FAST(signbit, signbit(a) != 0, a < 0);
QUESTION(isreal, true, 1);

/* --- with numbers --------------------------------------------------------- */

/* Returns the bounds rounded to the dtype, as in PyTorch; NaN without eps. */
static void logit_bounds(const struct pst_call *call, double *ret_low,
                         double *ret_high)
{
    const enum pst_dtype dtype = call->out[0].meta->dtype;

    *ret_low = *ret_high = NAN;
    if (call->args[1].kind == PST_ARG_NONE)
        return;
    *ret_low = pst_pw_round(dtype, pst_pw_number(&call->args[1]));
    *ret_high = pst_pw_round(dtype, 1.0 - *ret_low);
}

static double logit_at(double x, double low, double high)
{
    x = x < low ? low : x;
    x = x > high ? high : x;
    return log(x / (1.0 - x));
}

PST_PW_F64(logit_f64, 1, logit_at(a, p->s[0], p->s[1]))

static void logit_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 1);
    logit_bounds(call, &p.s[0], &p.s[1]);
    pst_pw_run(&p, logit_f64, NULL);
}

static void logit_loop(const struct pst_call *call, unsigned n, pst_loop_fn f)
{
    double low, high;

    logit_bounds(call, &low, &high);
    pst_pw_loop_with(call, n, (const float[3]){(float)low, (float)high, 0.0f},
                     f);
}

PST_PW_THUNKS(logit, logit, logit_loop, 1)
PST_PW_FAST_ROW(
    logit, "logit(Tensor self, float? eps=None) -> Tensor",
    pst_infer_unary_float, logit, 2e-7,
    "low = is(eps) ? eps : 0;"
    "inside = logical_and(self >= low, self <= 1 - low);"
    "self: inside ? grad / (self * (1 - self)) : (is(eps) ? 0 : nan)");

/* Returns the largest finite number of a dtype. */
static double largest_finite(enum pst_dtype dtype)
{
    switch (dtype) {
    case PST_F64:
        return 0x1.fffffffffffffp+1023;
    case PST_BF16:
        return 0x1.fep+127;
    case PST_F16:
        return 65504.0;
    default:
        return 0x1.fffffep+127;
    }
}

static void nan_to_num_f64(const struct pst_pw *p, int64_t n,
                           const double *const *x, double *y)
{
    const double max = largest_finite(p->compute);
    /* None is tested in the arguments, because s[] has NaN for it, and an
     * argument may itself be NaN. */
    const struct pst_arg *args = p->call->args;
    const double nan = args[1].kind == PST_ARG_NONE ? 0.0 : p->s[0];
    const double high = args[2].kind == PST_ARG_NONE ? max : p->s[1];
    const double low = args[3].kind == PST_ARG_NONE ? -max : p->s[2];

    for (int64_t i = 0; i < n; i++) {
        const double a = x[0][i];

        y[i] = isnan(a) ? nan : isinf(a) ? (a > 0.0 ? high : low) : a;
    }
}

PST_PW_REF_PARAMS(nan_to_num, 1, 3, nan_to_num_f64, whole_i64)

static void nan_to_num_loop(const struct pst_call *call, unsigned n,
                            pst_loop_fn f)
{
    const struct pst_arg *args = call->args;
    const float s[3] = {
        args[1].kind == PST_ARG_NONE ? 0.0f : (float)pst_pw_number(&args[1]),
        args[2].kind == PST_ARG_NONE ? 0x1.fffffep+127f
                                     : (float)pst_pw_number(&args[2]),
        args[3].kind == PST_ARG_NONE ? -0x1.fffffep+127f
                                     : (float)pst_pw_number(&args[3])};

    pst_pw_loop_with(call, n, s, f);
}

/* True if the call is f32, and the tensor was f32 in the graph, too: infinities
 * become the largest number of the graph's dtype. */
static bool is_nan_to_num_f32(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && call->args[0].value->meta.dtype == PST_F32;
}

PST_PW_THUNKS(nan_to_num, nan_to_num, nan_to_num_loop, 1)
static const struct pst_kernel nan_to_num_kernels[] = {
    PST_PW_ROWS(nan_to_num, is_nan_to_num_f32, 0.0),
    PST_PW_REF_KERNEL(nan_to_num),
};
PST_PW_ROW_OF(nan_to_num,
              "nan_to_num(Tensor self, float? nan=None, float? posinf=None, "
              "float? neginf=None) -> Tensor",
              pst_infer_same_as_0, nan_to_num,
              "self: isfinite(self) ? grad : 0");
