// SPDX-License-Identifier: Apache-2.0
/* Division with rounding, and remainders. */
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

/* --- floating point ------------------------------------------------------- */

/* Rounds an intermediate result to the dtype, as PyTorch does. If the divisor
 * is a single number (k[0] is 1), a 16-bit dtype rounds it and all steps to f32
 * only. */
static double round_step(const struct pst_pw *p, double x)
{
    if (p->compute == PST_F64)
        return x;
    x = (double)(float)x;
    return p->k[0] != 0 ? x : pst_pw_round(p->compute, x);
}

static double floor_divide(const struct pst_pw *p, double a, double b)
{
    double rest, quotient, whole;

    a = pst_pw_round(p->compute, a);
    if (b == 0.0)
        return a / b;
    rest = fmod(a, b);
    quotient = round_step(p, round_step(p, a - rest) / b);
    if (rest != 0.0 && (b < 0.0) != (rest < 0.0))
        quotient = round_step(p, quotient - 1.0);
    if (quotient == 0.0)
        return copysign(0.0, a / b);
    whole = floor(quotient);
    return round_step(p, quotient - whole) > 0.5 ? whole + 1.0 : whole;
}

static double remainder_of(double a, double b)
{
    const double rest = fmod(a, b);

    return rest != 0.0 && (b < 0.0) != (rest < 0.0) ? rest + b : rest;
}

static double trunc_divide(const struct pst_pw *p, double a, double b)
{
    return trunc(round_step(p, pst_pw_round(p->compute, a) / b));
}

/* --- integers ------------------------------------------------------------- */

/* True for divisors that need care in C: 0, which is a fault, and -1, by which
 * INT64_MIN overflows. */
static bool is_odd_divisor(const struct pst_pw *p, int64_t b)
{
    if (b == 0)
        pst_call_fault(p->call, PST_FAULT_DIVIDED_BY_ZERO, {0});
    return b == 0 || b == -1;
}

static int64_t trunc_whole(const struct pst_pw *p, int64_t a, int64_t b)
{
    if (is_odd_divisor(p, b))
        return b == 0 ? 0 : (int64_t)(0 - (uint64_t)a);
    return a / b;
}

static int64_t fmod_whole(const struct pst_pw *p, int64_t a, int64_t b)
{
    return is_odd_divisor(p, b) ? 0 : a % b;
}

static int64_t remainder_whole(const struct pst_pw *p, int64_t a, int64_t b)
{
    const int64_t rest = fmod_whole(p, a, b);

    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t floor_whole(const struct pst_pw *p, int64_t a, int64_t b)
{
    const int64_t quotient = trunc_whole(p, a, b);

    return fmod_whole(p, a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1
                                                          : quotient;
}

/* --- rows ----------------------------------------------------------------- */

static void divide(const struct pst_call *call, pst_pw_f64_fn f,
                   pst_pw_i64_fn i, bool keeps_divisor)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    p.k[0] =
        keeps_divisor && (p.x[1] == NULL || pst_meta_numel(p.x[1]->meta) == 1);
    p.round = p.k[0] == 0;
    pst_pw_run(&p, f, i);
}

#define DIVISION(name, floating, whole, keeps_divisor)                         \
    PST_PW_F64(name##_f64, 2, floating)                                        \
    PST_PW_I64(name##_i64, 2, whole(p, a, b))                                  \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        divide(call, name##_f64, name##_i64, keeps_divisor);                   \
    }

DIVISION(floor_divide, floor_divide(p, a, b), floor_whole, true)
DIVISION(trunc_divide, trunc_divide(p, a, b), trunc_whole, true)
DIVISION(fmod, fmod(a, b), fmod_whole, false)
DIVISION(remainder, remainder_of(a, b), remainder_whole, false)

#define FLOOR_DIVIDE(id, text)                                                 \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor",                                  \
        .infer = pst_infer_binary,                                             \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, floor_divide_kernels)

PST_PW_LOOP(floor_divide, 2, 0)
static const struct pst_kernel floor_divide_kernels[] = {
    PST_PW_ROWS(floor_divide, pst_pw_is_plain_f32, 0.0),
    PST_PW_REF_KERNEL(floor_divide),
};
FLOOR_DIVIDE(floor_divide, "floor_divide(Tensor self, Tensor other)");
FLOOR_DIVIDE(floor_divide_Scalar,
             "floor_divide.Scalar(Tensor self, Scalar other)");

/* Used by div(rounding_mode="trunc"). */
PST_PW_LOOP(trunc_divide, 2, 0)
static const struct pst_kernel trunc_divide_kernels[] = {
    PST_PW_ROWS(trunc_divide, pst_pw_is_plain_f32, 0.0),
    PST_PW_REF_KERNEL(trunc_divide),
};
const struct pst_op pst_op_trunc_divide = {
    .schema = "penstock::trunc_divide(Tensor self, Tensor other) -> Tensor",
    .infer = pst_infer_binary,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(trunc_divide, trunc_divide_kernels);
const struct pst_op pst_op_trunc_divide_Scalar = {
    .schema =
        "penstock::trunc_divide.Scalar(Tensor self, Scalar other) -> Tensor",
    .infer = pst_infer_binary,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(trunc_divide_Scalar, trunc_divide_kernels);

#define REMAINDERS(name, quotient)                                             \
    PST_PW_LOOP_ROUNDED(name, 2, 0)                                            \
    PST_PW_FAST_ROW(                                                           \
        name##_Tensor, #name ".Tensor(Tensor self, Tensor other) -> Tensor",   \
        pst_infer_binary, name, 2e-7, "self: grad; other: -grad * " quotient); \
    PST_PW_FAST_ROW(name##_Scalar,                                             \
                    #name ".Scalar(Tensor self, Scalar other) -> Tensor",      \
                    pst_infer_binary, name, 2e-7, "self: grad")

REMAINDERS(fmod, "div.Tensor_mode(self, other, rounding_mode='trunc')");
REMAINDERS(remainder, "div.Tensor_mode(self, other, rounding_mode='floor')");
PST_PW_ROW(remainder_Scalar_Tensor,
           "remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
           pst_infer_binary, remainder, NULL);

#define MODE                                                                   \
    "is(rounding_mode) ? (same(rounding_mode, 'floor') ? "                     \
    "floor_divide(self, other) : trunc_divide(self, other)) : self / other"

PST_COMPOSE(div_Tensor_mode,
            "div.Tensor_mode(Tensor self, Tensor other, *, "
            "str? rounding_mode) -> Tensor",
            MODE);
PST_COMPOSE(div_Scalar_mode,
            "div.Scalar_mode(Tensor self, Scalar other, *, "
            "str? rounding_mode) -> Tensor",
            MODE);
