// SPDX-License-Identifier: Apache-2.0
/* Functions of one operand (exp, log, sqrt, ...), and powers. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define TWO_OVER_SQRT_PI 1.12837916709551257390

PST_PW_F64(exp_f64, 1, exp(a))
PST_PW_F64(log_f64, 1, log(a))
PST_PW_F64(sqrt_f64, 1, sqrt(a))
PST_PW_F64(rsqrt_f64, 1, 1.0 / sqrt(a))
PST_PW_F64(sin_f64, 1, sin(a))
PST_PW_F64(cos_f64, 1, cos(a))
PST_PW_F64(erf_f64, 1, erf(a))
PST_PW_REF(exp, 0, 1, exp_f64, NULL)
PST_PW_REF(log, 0, 1, log_f64, NULL)
PST_PW_REF(sqrt, 0, 1, sqrt_f64, NULL)
PST_PW_REF(rsqrt, 0, 1, rsqrt_f64, NULL)
PST_PW_REF(sin, 0, 1, sin_f64, NULL)
PST_PW_REF(cos, 0, 1, cos_f64, NULL)
PST_PW_REF(erf, 0, 1, erf_f64, NULL)

static enum pst_status exp_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0,
                      pst_vjp_mul(v, pst_vjp_grad(v, 0), pst_vjp_out(v, 0)));
}

static enum pst_status log_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0,
                      pst_vjp_div(v, pst_vjp_grad(v, 0), pst_vjp_in(v, 0)));
}

static enum pst_status sqrt_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_mul_scalar(v, pst_vjp_grad(v, 0), 0.5);

    return pst_pw_set(v, 0, pst_vjp_div(v, g, pst_vjp_out(v, 0)));
}

static enum pst_status rsqrt_vjp(struct pst_vjp *v)
{
    struct pst_value *cube = pst_vjp_pow_scalar(v, pst_vjp_out(v, 0), 3.0);
    struct pst_value *g = pst_vjp_mul(v, pst_vjp_grad(v, 0), cube);

    return pst_pw_set(v, 0, pst_vjp_mul_scalar(v, g, -0.5));
}

static enum pst_status sin_vjp(struct pst_vjp *v)
{
    struct pst_value *x =
        pst_vjp_emit(v, &pst_op_cos, PST_ARGS(pst_v(pst_vjp_in(v, 0))));

    return pst_pw_set(v, 0, pst_vjp_mul(v, pst_vjp_grad(v, 0), x));
}

static enum pst_status cos_vjp(struct pst_vjp *v)
{
    struct pst_value *x =
        pst_vjp_emit(v, &pst_op_sin, PST_ARGS(pst_v(pst_vjp_in(v, 0))));

    x = pst_vjp_mul(v, pst_vjp_grad(v, 0), x);
    return pst_pw_set(v, 0, pst_vjp_neg(v, x));
}

/* The derivative is 2/sqrt(pi) exp(-x^2). */
static enum pst_status erf_vjp(struct pst_vjp *v)
{
    struct pst_value *x = pst_vjp_in(v, 0);

    x = pst_vjp_neg(v, pst_vjp_mul(v, x, x));
    x = pst_vjp_emit(v, &pst_op_exp, PST_ARGS(pst_v(x)));
    x = pst_vjp_mul_scalar(v, x, TWO_OVER_SQRT_PI);
    return pst_pw_set(v, 0, pst_vjp_mul(v, pst_vjp_grad(v, 0), x));
}

PST_PW_LOOP(exp, 1, 0)
PST_PW_LOOP(log, 1, 0)
PST_PW_LOOP(sqrt, 1, 0)
PST_PW_LOOP(rsqrt, 1, 0)
PST_PW_LOOP(sin, 1, 0)
PST_PW_LOOP(cos, 1, 0)
PST_PW_LOOP(erf, 1, 0)

static const struct pst_kernel exp_kernels[] = {
    PST_PW_ROWS(exp, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(exp),
};
static const struct pst_kernel log_kernels[] = {
    PST_PW_ROWS(log, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(log),
};
static const struct pst_kernel sqrt_kernels[] = {
    PST_PW_ROWS(sqrt, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(sqrt),
};
static const struct pst_kernel rsqrt_kernels[] = {
    PST_PW_ROWS(rsqrt, pst_pw_is_f32, 2e-7),
    PST_PW_REF_KERNEL(rsqrt),
};
static const struct pst_kernel sin_kernels[] = {
    PST_PW_ROWS(sin, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(sin),
};
static const struct pst_kernel cos_kernels[] = {
    PST_PW_ROWS(cos, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(cos),
};
static const struct pst_kernel erf_kernels[] = {
    PST_PW_ROWS(erf, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(erf),
};

#define ROW(name)                                                              \
    const struct pst_op pst_op_##name = {                                      \
        .schema = "aten::" #name "(Tensor self) -> Tensor",                    \
        .infer = pst_infer_unary_float,                                        \
        .vjp = name##_vjp,                                                     \
    };                                                                         \
    PST_CPU_KERNELS(name, name##_kernels)

ROW(exp);
ROW(log);
ROW(sqrt);
ROW(rsqrt);
ROW(sin);
ROW(cos);
ROW(erf);

/* --- powers --------------------------------------------------------------- */

/* Overflow wraps around as in PyTorch; a negative exponent truncates the
 * result. */
static int64_t power_i64(int64_t base, int64_t exponent)
{
    uint64_t y = 1, b = (uint64_t)base;

    if (exponent < 0) {
        if (base == 1)
            return 1;
        if (base == -1)
            return exponent % 2 == 0 ? 1 : -1;
        return 0;
    }
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1)
            y *= b;
        b *= b;
    }
    return (int64_t)y;
}

/* PyTorch uses square roots for these exponents; pow() differs from them at
 * -0. */
static double power(double base, double exponent)
{
    if (exponent == 0.5)
        return sqrt(base);
    if (exponent == -0.5)
        return 1.0 / sqrt(base);
    return pow(base, exponent);
}

PST_PW_F64(pow_f64, 2, power(a, b))
PST_PW_I64(pow_i64, 2, power_i64(a, b))

static void pow_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    p.round = true;
    pst_pw_run(&p, pow_f64, pow_i64);
}

/* Computes g e x^(e-1), or 0 if e = 0, for any x. Operands: grad, self,
 * exponent. */
PST_PW_F64(pow_backward_f64, 3, c == 0.0 ? 0.0 : a * c * power(b, c - 1.0))

static void pow_scalar_backward_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 3);
    p.round = true;
    pst_pw_run(&p, pow_backward_f64, NULL);
}

/* Exponents that are common in models have loops of their own. */
static bool is_power(const struct pst_call *call, unsigned arg, double exponent)
{
    return call->args[arg].kind != PST_ARG_VALUE && pst_pw_is_f32(call) &&
           pst_pw_number(&call->args[arg]) == exponent;
}

#define IS(name, arg, exponent)                                                \
    static bool is_##name(const struct pst_call *call)                         \
    {                                                                          \
        return is_power(call, arg, exponent);                                  \
    }
IS(square, 1, 2.0)
IS(cube, 1, 3.0)
IS(root, 1, 0.5)
IS(inverse, 1, -1.0)
IS(inverse_root, 1, -0.5)
IS(root_backward, 2, 0.5)
IS(three_halves_backward, 2, 1.5)
IS(square_backward, 2, 2.0)
IS(cube_backward, 2, 3.0)

PST_PW_LOOP(square, 1, 0)
PST_PW_LOOP(cube, 1, 0)
PST_PW_THUNKS(power_root, sqrt, pst_pw_loop, 1, 0, 0)
PST_PW_THUNKS(power_inverse, reciprocal, pst_pw_loop, 1, 0, 0)
PST_PW_THUNKS(power_inverse_root, rsqrt, pst_pw_loop, 1, 0, 0)
PST_PW_LOOP_ROUNDED(pow, 2, 0)
PST_PW_LOOP(root_backward, 2, 0)
PST_PW_LOOP(three_halves_backward, 2, 0)
PST_PW_LOOP(square_backward, 2, 0)
PST_PW_LOOP(cube_backward, 2, 0)

/* Rounds the exponent as the reference does. */
static void pow_backward_loop(const struct pst_call *call, unsigned n,
                              pst_loop_fn f)
{
    const float exponent = (float)pst_pw_round(call->out[0].meta->dtype,
                                               pst_pw_number(&call->args[2]));

    pst_pw_loop_with(call, n, (const float[3]){exponent, 0.0f, 0.0f}, f);
}

PST_PW_THUNKS(pow_backward, pow_backward, pow_backward_loop, 2)

static const struct pst_kernel pow_kernels[] = {
    PST_PW_ROWS(square, is_square, 0.0),
    PST_PW_ROWS(cube, is_cube, 2e-7),
    PST_PW_ROWS(power_root, is_root, 0.0),
    PST_PW_ROWS(power_inverse, is_inverse, 0.0),
    PST_PW_ROWS(power_inverse_root, is_inverse_root, 2e-7),
    PST_PW_ROWS(pow, pst_pw_is_f32, 5e-7),
    PST_PW_REF_KERNEL(pow),
};
static const struct pst_kernel pow_scalar_backward_kernels[] = {
    PST_PW_ROWS(root_backward, is_root_backward, 4e-7),
    PST_PW_ROWS(three_halves_backward, is_three_halves_backward, 4e-7),
    PST_PW_ROWS(square_backward, is_square_backward, 2e-7),
    PST_PW_ROWS(cube_backward, is_cube_backward, 4e-7),
    PST_PW_ROWS(pow_backward, pst_pw_is_f32, 2e-7),
    PST_PW_REF_KERNEL(pow_scalar_backward),
};

static enum pst_status infer_pow(struct pst_infer *c)
{
    enum pst_status status = pst_infer_binary(c);

    if (status == PST_OK && c->args[1].kind == PST_ARG_INT &&
        c->args[1].i < 0 && pst_dtype_kind(c->out[0].dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "an integer tensor has no power %lld",
                              (long long)c->args[1].i);
    return status;
}

static enum pst_status pow_scalar_vjp(struct pst_vjp *v)
{
    return pst_pw_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_pow_scalar_backward,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                              pst_v(pst_vjp_in(v, 0)), v->node->args[1])));
}

/* Sets the gradient of the base: b a^(b-1) g, but 0 where b = 0. */
static void pow_base_vjp(struct pst_vjp *v, struct pst_value *g,
                         struct pst_value *a, struct pst_value *b)
{
    struct pst_value *zero, *d;

    d = pst_vjp_emit(v, &pst_op_pow_Tensor_Tensor,
                     PST_ARGS(pst_v(a), pst_v(pst_vjp_add_scalar(v, b, -1.0))));
    d = pst_vjp_mul(v, pst_vjp_mul(v, g, b), d);
    zero = pst_vjp_emit(v, &pst_op_eq_Scalar, PST_ARGS(pst_v(b), pst_f(0.0)));
    (void)pst_pw_set(v, 0, pst_vjp_where(v, zero, NULL, d));
}

/* Sets the gradient of the exponent: log(a) a^b g, but 0 where a = 0 and b
 * >= 0. */
static void pow_exponent_vjp(struct pst_vjp *v, struct pst_value *g,
                             struct pst_value *a, struct pst_value *b)
{
    struct pst_value *zero, *positive, *d;

    if (a == NULL)
        a = pst_vjp_full(v, &b->meta, pst_pw_number(&v->node->args[0]));
    d = pst_vjp_emit(v, &pst_op_log, PST_ARGS(pst_v(a)));
    d = pst_vjp_mul(v, pst_vjp_mul(v, g, pst_vjp_out(v, 0)), d);
    zero = pst_vjp_emit(v, &pst_op_eq_Scalar, PST_ARGS(pst_v(a), pst_f(0.0)));
    positive =
        pst_vjp_emit(v, &pst_op_ge_Scalar, PST_ARGS(pst_v(b), pst_f(0.0)));
    zero = pst_vjp_emit(v, &pst_op_logical_and,
                        PST_ARGS(pst_v(zero), pst_v(positive)));
    (void)pst_pw_set(v, 1, pst_vjp_where(v, zero, NULL, d));
}

static enum pst_status pow_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    struct pst_value *a = pst_vjp_in(v, 0), *b = pst_vjp_in(v, 1);

    if (pst_pw_wants(v, 0))
        pow_base_vjp(v, g, a, b);
    if (pst_pw_wants(v, 1))
        pow_exponent_vjp(v, g, a, b);
    return v->build.status;
}

const struct pst_op pst_op_pow_Tensor_Scalar = {
    .schema = "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
    .infer = infer_pow,
    .vjp = pow_scalar_vjp,
};
PST_CPU_KERNELS(pow_Tensor_Scalar, pow_kernels);

const struct pst_op pst_op_pow_Tensor_Tensor = {
    .schema = "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
    .infer = infer_pow,
    .vjp = pow_vjp,
};
PST_CPU_KERNELS(pow_Tensor_Tensor, pow_kernels);

const struct pst_op pst_op_pow_Scalar = {
    .schema = "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor",
    .infer = infer_pow,
    .vjp = pow_vjp,
};
PST_CPU_KERNELS(pow_Scalar, pow_kernels);

const struct pst_op pst_op_pow_scalar_backward = {
    .schema = "penstock::pow_scalar_backward(Tensor grad_output, Tensor self, "
              "Scalar exponent) -> Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(pow_scalar_backward, pow_scalar_backward_kernels);
