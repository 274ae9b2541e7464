// SPDX-License-Identifier: Apache-2.0
/* Elementary functions of one operand; their gradients are formulas. */
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define PI 3.14159265358979323846

/* NAME(self): integers become f32. */
#define FUNCTION(name, expr, gradient)                                         \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, NULL)                                   \
    PST_PW_ROW(name, #name "(Tensor self) -> Tensor", pst_infer_unary_float,   \
               name, gradient)

FUNCTION(exp2, exp2(a), "self: grad * (result * 0.69314718055994530942)");
FUNCTION(expm1, expm1(a), "self: grad * (result + 1)");
FUNCTION(log2, log2(a), "self: grad / (self * 0.69314718055994530942)");
FUNCTION(log10, log10(a), "self: grad / (self * 2.30258509299404568402)");
FUNCTION(log1p, log1p(a), "self: grad / (self + 1)");
FUNCTION(tan, tan(a), "self: grad * (result * result + 1)");
FUNCTION(sinh, sinh(a), "self: grad * cosh(self)");
FUNCTION(cosh, cosh(a), "self: grad * sinh(self)");
FUNCTION(asin, asin(a), "self: grad * rsqrt(1 - self * self)");
FUNCTION(acos, acos(a), "self: grad * -rsqrt(1 - self * self)");
FUNCTION(atan, atan(a), "self: grad / (self * self + 1)");
FUNCTION(asinh, asinh(a), "self: grad * rsqrt(self * self + 1)");
FUNCTION(acosh, acosh(a), "self: grad * rsqrt(self * self - 1)");
FUNCTION(atanh, atanh(a), "self: grad / (1 - self * self)");
FUNCTION(erfc, erfc(a),
         "self: grad * (exp(-(self * self)) * -1.12837916709551257390)");
FUNCTION(deg2rad, a *(PI / 180.0), "self: grad * (pi / 180)");
FUNCTION(rad2deg, a *(180.0 / PI), "self: grad * (180 / pi)");

/* The product with pi is one of the dtype. */
static double sinc_at(const struct pst_pw *p, double x)
{
    const double t =
        p->compute == PST_F64 ? PI * x : (double)((float)PI * (float)x);

    return x == 0.0 ? 1.0 : sin(t) / t;
}

FUNCTION(sinc, sinc_at(p, a),
         "t = self * pi;"
         "self: grad * (self == 0 ? 0 : (t * cos(t) - sin(t)) / (t * self))");
FUNCTION(angle, isnan(a) ? a : a < 0.0 ? PI : 0.0, "self: 0");

/* --- roundings: integers are whole already ------------------------------- */

PST_PW_I64(whole_i64, 1, a)

#define ROUNDING(name, expr, gradient)                                         \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, whole_i64)                              \
    PST_PW_ROW(name, #name "(Tensor self) -> Tensor", pst_infer_same_as_0,     \
               name, gradient)

ROUNDING(floor, floor(a), "self: 0");
ROUNDING(ceil, ceil(a), "self: 0");
ROUNDING(trunc, trunc(a), "self: 0");
ROUNDING(round, rint(a), "self: 0");
ROUNDING(frac, a - trunc(a), "self: grad");

/* Scaled in the dtype of the operand, as PyTorch does: ties depend on it. */
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
PST_REWRITE_FORMULA(
    special_round,
    "aten::special_round(Tensor self, *, int decimals=0) -> Tensor",
    "decimals == 0 ? round(self) : round.decimals(self, decimals=decimals)");

/* --- questions ----------------------------------------------------------- */

/* Computed in the operand's dtype; no integer is true but for signbit. */
#define QUESTION(name, expr, whole)                                            \
    PST_PW_F64(name##_f64, 1, (double)(expr))                                  \
    PST_PW_I64(name##_i64, 1, whole)                                           \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        struct pst_pw p;                                                       \
                                                                               \
        pst_pw_init(&p, call, 0, 1);                                           \
        p.compute = call->in[0].meta.dtype;                                    \
        pst_pw_run(&p, name##_f64, name##_i64);                                \
    }                                                                          \
    PST_PW_ROW(name, #name "(Tensor self) -> Tensor", pst_infer_unary_bool,    \
               name, NULL)

QUESTION(isnan, isnan(a) != 0, 0);
QUESTION(isinf, isinf(a) != 0, 0);
QUESTION(isfinite, isfinite(a) != 0, 1);
QUESTION(isneginf, a == -INFINITY, 0);
QUESTION(isposinf, a == INFINITY, 0);
QUESTION(signbit, signbit(a) != 0, a < 0);
QUESTION(isreal, true, 1);

/* --- with numbers --------------------------------------------------------- */

static double logit_at(double x, double eps)
{
    if (!isnan(eps))
        x = x < eps ? eps : x > 1.0 - eps ? 1.0 - eps : x;
    return log(x / (1.0 - x));
}

PST_PW_F64(logit_f64, 1, logit_at(a, p->s[0]))
PST_PW_REF_PARAMS(logit, 1, 1, logit_f64, NULL)
PST_PW_ROW(logit, "logit(Tensor self, float? eps=None) -> Tensor",
           pst_infer_unary_float, logit,
           "low = is(eps) ? eps : 0;"
           "inside = logical_and(self >= low, self <= 1 - low);"
           "self: inside ? grad / (self * (1 - self)) : (is(eps) ? 0 : nan)");

/* The largest finite number of a dtype. */
static double largest(enum pst_dtype dtype)
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
    const double max = largest(p->compute);
    const double nan = isnan(p->s[0]) ? 0.0 : p->s[0];
    const double high = isnan(p->s[1]) ? max : p->s[1];
    const double low = isnan(p->s[2]) ? -max : p->s[2];

    for (int64_t i = 0; i < n; i++) {
        const double a = x[0][i];

        y[i] = isnan(a) ? nan : isinf(a) ? (a > 0.0 ? high : low) : a;
    }
}

PST_PW_REF_PARAMS(nan_to_num, 1, 3, nan_to_num_f64, whole_i64)
PST_PW_ROW(nan_to_num,
           "nan_to_num(Tensor self, float? nan=None, float? posinf=None, "
           "float? neginf=None) -> Tensor",
           pst_infer_same_as_0, nan_to_num, "self: isfinite(self) ? grad : 0");
