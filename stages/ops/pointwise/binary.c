// SPDX-License-Identifier: Apache-2.0
/* Functions of two operands; their gradients are formulas. */
#include "stages/ops/pointwise/pointwise.h"
#include "stages/ops/pointwise/special/special_math.h"

#include <math.h>

/* Runs f or i; operands that are numbers are rounded to the 16-bit dtype of the
 * tensors. */
static void run_rounded(const struct pst_call *call, pst_pw_f64_fn f,
                        pst_pw_i64_fn i)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    p.round = true;
    pst_pw_run(&p, f, i);
}

/* Defines an operator NAME(self, other); integers are converted to f32. */
#define FUNCTION(name, expr, how, gradient)                                    \
    PST_PW_F64(name##_f64, 2, expr)                                            \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        run_rounded(call, name##_f64, NULL);                                   \
    }                                                                          \
    PST_PW_ROW(name, #name "(Tensor self, Tensor other) -> Tensor", how, name, \
               gradient)

/* Defines NAME(self, other) with a fast loop of that name; tol is its error
 * against the reference. */
#define FAST(name, expr, how, tol, gradient)                                   \
    PST_PW_F64(name##_f64, 2, expr)                                            \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        run_rounded(call, name##_f64, NULL);                                   \
    }                                                                          \
    PST_PW_LOOP_ROUNDED(name, 2, 0)                                            \
    PST_PW_FAST_ROW(name, #name "(Tensor self, Tensor other) -> Tensor", how,  \
                    name, tol, gradient)

FAST(atan2, atan2(a, b), pst_infer_binary_float, 2e-7,
     "d = self * self + other * other; r = d == 0 ? 0 : 1 / d;"
     "self: grad * other * r; other: grad * -self * r");
FAST(hypot, hypot(a, b), pst_infer_binary, 2e-7,
     "self: grad * (self / result); other: grad * (other / result)");

/* Returns log(exp(a) + exp(b)). If a and b are the same infinity, returns it:
 * their difference would be NaN. */
static double log_add(double a, double b)
{
    if (a == b && isinf(a))
        return a;
    return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

static double log_add2(double a, double b)
{
    if (a == b && isinf(a))
        return a;
    return fmax(a, b) + log2(1.0 + exp2(-fabs(a - b)));
}

FAST(logaddexp, isnan(a) || isnan(b) ? NAN : log_add(a, b), pst_infer_binary,
     2e-7,
     "self: grad / (exp(other - self) + 1);"
     "other: grad / (exp(self - other) + 1)");
FAST(logaddexp2, isnan(a) || isnan(b) ? NAN : log_add2(a, b), pst_infer_binary,
     2e-7,
     "self: grad / (exp2(other - self) + 1);"
     "other: grad / (exp2(self - other) + 1)");

/* Returns the number of the dtype that is next to a in the direction of b. */
static double next_after(enum pst_dtype dtype, double a, double b)
{
    if (dtype == PST_F64)
        return nextafter(a, b);
    return (double)nextafterf((float)a, (float)b);
}

FUNCTION(nextafter, next_after(p->compute, a, b), pst_infer_binary,
         "self: self == other ? 0 : grad; other: 0");

#define GAMMA(name, sign)                                                      \
    FUNCTION(name, pst_math_##name(a, b), pst_infer_binary,                    \
             "self: fail('only the second operand has a gradient, as in "      \
             "PyTorch');"                                                      \
             "other: " sign                                                    \
             "grad * exp((self - 1) * log(other) - other - lgamma(self))")

GAMMA(igamma, "");
GAMMA(igammac, "-");

/* --- signs, steps, extrema ------------------------------------------------ */

#define COPYSIGN(id, text, how)                                                \
    PST_PW_FAST_ROW(id, text, how, copysign, 0.0,                              \
                    "ratio = self == 0 ? 0 : result / self;"                   \
                    "self: grad * ratio")

PST_PW_F64(copysign_f64, 2, copysign(a, b))
static void copysign_ref(const struct pst_call *call)
{
    run_rounded(call, copysign_f64, NULL);
}
PST_PW_LOOP_ROUNDED(copysign, 2, 0)
COPYSIGN(copysign_Tensor,
         "copysign.Tensor(Tensor self, Tensor other) -> Tensor",
         pst_infer_binary_float);
COPYSIGN(copysign_Scalar,
         "copysign.Scalar(Tensor self, Scalar other) -> Tensor",
         pst_infer_binary_float);

#define WHOLE(name, expr, whole, gradient)                                     \
    PST_PW_F64(name##_f64, 2, expr)                                            \
    PST_PW_I64(name##_i64, 2, whole)                                           \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        run_rounded(call, name##_f64, name##_i64);                             \
    }                                                                          \
    PST_PW_LOOP_ROUNDED(name, 2, 0)                                            \
    PST_PW_FAST_ROW(name, #name "(Tensor self, Tensor other) -> Tensor",       \
                    pst_infer_binary, name, 0.0, gradient)

WHOLE(fmax, isnan(b) || a > b ? a : b, PST_MAX(a, b),
      "first = logical_or(self >= other, isnan(other));"
      "self: first ? grad : 0; other: first ? 0 : grad");
WHOLE(fmin, isnan(b) || a < b ? a : b, PST_MIN(a, b),
      "first = logical_or(self <= other, isnan(other));"
      "self: first ? grad : 0; other: first ? 0 : grad");

PST_PW_F64(heaviside_f64, 2, a == 0.0 ? b : (double)(a > 0.0))
PST_PW_I64(heaviside_i64, 2, a == 0 ? b : a > 0)
static void heaviside_ref(const struct pst_call *call)
{
    run_rounded(call, heaviside_f64, heaviside_i64);
}
PST_PW_LOOP_ROUNDED(heaviside, 2, 0)
PST_PW_FAST_ROW(heaviside, "heaviside(Tensor self, Tensor values) -> Tensor",
                pst_infer_binary, heaviside, 0.0, NULL);

/* Returns 2^b rounded to the dtype, as PyTorch does. */
static double two_to(double b, enum pst_dtype dtype)
{
    double slot;

    pst_store_f64(dtype, &slot, 0, exp2(b));
    return pst_load_f64(dtype, &slot, 0);
}

PST_PW_F64(ldexp_f64, 2, a *exp2(b))
PST_PW_F64(ldexp_f32, 2, a *two_to(b, PST_F32))
PST_PW_F64(ldexp_f16, 2, a *two_to(b, PST_F16))
PST_PW_F64(ldexp_bf16, 2, a *two_to(b, PST_BF16))
/* ldexp() is used because 2^b may overflow a double where the result does
 * not. */
PST_PW_F64(ldexp_whole, 2, ldexp(a, (int)fmin(fmax(b, -10000.0), 10000.0)))

static void ldexp_ref(const struct pst_call *call)
{
    const struct pst_meta *a = call->in[0].meta, *b = call->in[1].meta;
    enum pst_dtype of = b->dtype;
    struct pst_pw p;

    /* Observed in PyTorch 2.13 for all pairs of floating dtypes. */
    if (b->rank == 0 && a->dtype != PST_F32 &&
        pst_dtype_kind(a->dtype) == PST_KIND_FLOAT)
        of = pst_dtype_promote(a->dtype, b->dtype);
    pst_pw_init(&p, call, 0, 2);
    pst_pw_run(&p,
               pst_dtype_kind(b->dtype) != PST_KIND_FLOAT ? ldexp_whole
               : of == PST_F32                            ? ldexp_f32
               : of == PST_F16                            ? ldexp_f16
               : of == PST_BF16                           ? ldexp_bf16
                                                          : ldexp_f64,
               NULL);
}

/* The gradient uses PyTorch's integer powers: 2^-1 is 0 for integer
 * exponents. */
PST_PW_ROW(ldexp_Tensor, "ldexp.Tensor(Tensor self, Tensor other) -> Tensor",
           pst_infer_binary_float, ldexp,
           "self: grad * pow.Scalar(2, other);"
           "other: grad * result * 0.69314718055994530942");

/* --- x log y -------------------------------------------------------------- */

static double x_log_y(double x, double log_y, double y)
{
    if (isnan(y))
        return NAN;
    return x == 0.0 ? 0.0 : x * log_y;
}

PST_PW_F64(xlogy_f64, 2, x_log_y(a, log(b), b))
PST_PW_F64(xlog1py_f64, 2, x_log_y(a, log1p(b), b))
static void xlogy_ref(const struct pst_call *call)
{
    run_rounded(call, xlogy_f64, NULL);
}
static void xlog1py_ref(const struct pst_call *call)
{
    run_rounded(call, xlog1py_f64, NULL);
}

PST_PW_LOOP_ROUNDED(xlogy, 2, 0)

#define XLOGY(id, text, gradient)                                              \
    PST_PW_FAST_ROW(id, text " -> Tensor", pst_infer_binary_float, xlogy,      \
                    2e-7, gradient)
#define XLOG1PY(id, text, gradient)                                            \
    PST_PW_ROW(id, text " -> Tensor", pst_infer_binary_float, xlog1py, gradient)

XLOGY(xlogy_Tensor, "xlogy.Tensor(Tensor self, Tensor other)",
      "self: logical_and(self == 0, other <= 0) ? 0 : grad * log(other);"
      "other: grad * self / other");
XLOGY(xlogy_Scalar_Self, "xlogy.Scalar_Self(Scalar self, Tensor other)",
      "other: grad * self / other");
XLOGY(xlogy_Scalar_Other, "xlogy.Scalar_Other(Tensor self, Scalar other)",
      "self: other <= 0 ? (self == 0 ? 0 : grad * log_of(other)) : "
      "grad * log_of(other)");
XLOG1PY(special_xlog1py, "special_xlog1py(Tensor self, Tensor other)",
        "self: logical_and(self == 0, other <= -1) ? 0 : grad * log1p(other);"
        "other: grad * self / (other + 1)");
XLOG1PY(special_xlog1py_self_scalar,
        "special_xlog1py.self_scalar(Scalar self, Tensor other)",
        "other: grad * self / (other + 1)");
XLOG1PY(special_xlog1py_other_scalar,
        "special_xlog1py.other_scalar(Tensor self, Scalar other)",
        "self: other <= -1 ? (self == 0 ? 0 : grad * log_of(other + 1)) : "
        "grad * log_of(other + 1)");

/* --- integers ------------------------------------------------------------- */

/* Returns |a| in the dtype; the most negative integer is returned unchanged. */
static int64_t magnitude(const struct pst_pw *p, uint64_t a)
{
    const int64_t x = pst_pw_wrap(p->compute, (int64_t)a);

    return x < 0 ? pst_pw_wrap(p->compute, (int64_t)(0 - (uint64_t)x)) : x;
}

static int64_t common_divisor(const struct pst_pw *p, int64_t a, int64_t b)
{
    int64_t x = magnitude(p, (uint64_t)a), y = magnitude(p, (uint64_t)b);

    while (x != 0) {
        const int64_t rest = x == -1 ? 0 : y % x;

        y = x;
        x = rest;
    }
    return y;
}

/* Returns the least common multiple |a / d * b|, with the greatest common
 * divisor d; dtypes below 32 bits are computed in 32 bits. */
static int64_t common_multiple(const struct pst_pw *p, int64_t a, int64_t b)
{
    const int64_t d = common_divisor(p, a, b);
    uint64_t y;

    if (d == 0)
        return 0;
    y = (uint64_t)(d == -1 ? a : a / d) * (uint64_t)b;
    if (pst_dtype_size(p->compute) >= 4)
        return magnitude(p, y);
    return (int64_t)y < 0 ? (int64_t)(0 - y) : (int64_t)y;
}

static enum pst_status infer_integers(struct pst_infer *c)
{
    enum pst_status status = pst_infer_binary(c);

    if (status == PST_OK && pst_dtype_kind(c->out[0].dtype) != PST_KIND_INT)
        return pst_infer_fail(c, "wants integers, got %s",
                              pst_dtype_name(c->out[0].dtype));
    return status;
}

PST_PW_F64(integers_f64, 2, 0.0) /* unused: inference rejects floats */
PST_PW_I64(gcd_i64, 2, common_divisor(p, a, b))
PST_PW_I64(lcm_i64, 2, common_multiple(p, a, b))
PST_PW_REF(gcd, 0, 2, integers_f64, gcd_i64)
PST_PW_REF(lcm, 0, 2, integers_f64, lcm_i64)
PST_PW_ROW(gcd, "gcd(Tensor self, Tensor other) -> Tensor", infer_integers, gcd,
           NULL);
PST_PW_ROW(lcm, "lcm(Tensor self, Tensor other) -> Tensor", infer_integers, lcm,
           NULL);

/* A shift by the width of the dtype or more gives 0, or the sign if it is a
 * right shift. */
static int64_t shift_left(const struct pst_pw *p, int64_t a, int64_t b)
{
    const int64_t bits = 8 * (int64_t)pst_dtype_size(p->compute);

    return b < 0 || b >= bits ? 0 : (int64_t)((uint64_t)a << b);
}

static int64_t shift_right(const struct pst_pw *p, int64_t a, int64_t b)
{
    const int64_t bits = 8 * (int64_t)pst_dtype_size(p->compute);

    return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b;
}

PST_PW_I64(shift_left_i64, 2, shift_left(p, a, b))
PST_PW_I64(shift_right_i64, 2, shift_right(p, a, b))
PST_PW_REF(shift_left, 0, 2, integers_f64, shift_left_i64)
PST_PW_REF(shift_right, 0, 2, integers_f64, shift_right_i64)

#define SHIFT(id, text, kernel)                                                \
    PST_PW_ROW(id, text " -> Tensor", infer_integers, kernel, NULL)

SHIFT(bitwise_left_shift_Tensor,
      "bitwise_left_shift.Tensor(Tensor self, Tensor other)", shift_left);
SHIFT(bitwise_left_shift_Tensor_Scalar,
      "bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other)",
      shift_left);
SHIFT(bitwise_left_shift_Scalar_Tensor,
      "bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other)",
      shift_left);
SHIFT(bitwise_right_shift_Tensor,
      "bitwise_right_shift.Tensor(Tensor self, Tensor other)", shift_right);
SHIFT(bitwise_right_shift_Tensor_Scalar,
      "bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other)",
      shift_right);
SHIFT(bitwise_right_shift_Scalar_Tensor,
      "bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other)",
      shift_right);
