// SPDX-License-Identifier: Apache-2.0
/* Activations and their backward kernels, which multiply the gradient by the
 * derivative. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>
#include <string.h>

#define SQRT_2_OVER_PI  0.79788456080286535588
#define SQRT_1_2        0.70710678118654752440
#define INV_SQRT_2PI    0.39894228040143267794
#define GELU_TANH_CUBIC 0.044715

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* --- tanh, sigmoid, relu, silu ------------------------------------------- */

PST_PW_F64(tanh_f64, 1, tanh(a))
PST_PW_F64(sigmoid_f64, 1, sigmoid(a))
/* A NaN stays NaN, and -0 stays -0. */
PST_PW_F64(relu_f64, 1, a < 0.0 ? 0.0 : a)
PST_PW_I64(relu_i64, 1, a < 0 ? 0 : a)
PST_PW_F64(silu_f64, 1, a *sigmoid(a))
/* Operands of backward kernels: grad; the result (tanh, sigmoid) or the input
 * (threshold, silu); the threshold. */
PST_PW_F64(tanh_backward_f64, 2, a *(1.0 - b * b))
PST_PW_F64(sigmoid_backward_f64, 2, a *b *(1.0 - b))
PST_PW_F64(threshold_backward_f64, 3, b <= c ? 0.0 : a)
PST_PW_F64(silu_backward_f64, 2, a *sigmoid(b) * (1.0 + b * (1.0 - sigmoid(b))))

PST_PW_REF(tanh, 0, 1, tanh_f64, NULL)
PST_PW_REF(sigmoid, 0, 1, sigmoid_f64, NULL)
PST_PW_REF(relu, 0, 1, relu_f64, relu_i64)
PST_PW_REF(silu, 0, 1, silu_f64, NULL)
PST_PW_REF(tanh_backward, 0, 2, tanh_backward_f64, NULL)
PST_PW_REF(sigmoid_backward, 0, 2, sigmoid_backward_f64, NULL)
PST_PW_REF(threshold_backward, 0, 3, threshold_backward_f64, NULL)
PST_PW_REF(silu_backward, 0, 2, silu_backward_f64, NULL)

static enum pst_status tanh_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0,
                      pst_vjp_emit(v, &pst_op_tanh_backward,
                                   PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                            pst_v(pst_vjp_out(v, 0)))));
}

static enum pst_status sigmoid_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0,
                      pst_vjp_emit(v, &pst_op_sigmoid_backward,
                                   PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                            pst_v(pst_vjp_out(v, 0)))));
}

/* Uses the result instead of the input: the two are positive for the same
 * elements. */
static enum pst_status relu_vjp(struct pst_vjp *v)
{
    return pst_pw_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_threshold_backward,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                              pst_v(pst_vjp_out(v, 0)), pst_i(0))));
}

static enum pst_status silu_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0,
                      pst_vjp_emit(v, &pst_op_silu_backward,
                                   PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                            pst_v(pst_vjp_in(v, 0)))));
}

/* --- gelu ---------------------------------------------------------------- */

PST_PW_F64(gelu_erf_f64, 1, 0.5 * a * (1.0 + erf(a * SQRT_1_2)))

static double gelu_tanh(double x)
{
    const double u = SQRT_2_OVER_PI * (x + GELU_TANH_CUBIC * x * x * x);

    return 0.5 * x * (1.0 + tanh(u));
}

PST_PW_F64(gelu_tanh_f64, 1, gelu_tanh(a))

/* Returns the derivative of gelu: Phi(x) + x phi(x). */
static double gelu_erf_slope(double x)
{
    return 0.5 * (1.0 + erf(x * SQRT_1_2)) +
           x * INV_SQRT_2PI * exp(-0.5 * x * x);
}

static double gelu_tanh_slope(double x)
{
    const double u = SQRT_2_OVER_PI * (x + GELU_TANH_CUBIC * x * x * x);
    const double du = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_TANH_CUBIC * x * x);
    const double t = tanh(u);

    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

PST_PW_F64(gelu_erf_backward_f64, 2, a *gelu_erf_slope(b))
PST_PW_F64(gelu_tanh_backward_f64, 2, a *gelu_tanh_slope(b))

static bool is_tanh(const struct pst_arg *approximate)
{
    return strcmp(approximate->s, "tanh") == 0;
}

static void gelu_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 1);
    pst_pw_run(&p, is_tanh(&call->args[1]) ? gelu_tanh_f64 : gelu_erf_f64,
               NULL);
}

static void gelu_backward_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    pst_pw_run(&p,
               is_tanh(&call->args[2]) ? gelu_tanh_backward_f64
                                       : gelu_erf_backward_f64,
               NULL);
}

static enum pst_status check_approximate(struct pst_infer *c, unsigned arg)
{
    const char *s = c->args[arg].s;

    if (strcmp(s, "none") != 0 && strcmp(s, "tanh") != 0)
        return pst_infer_fail(c,
                              "approximate is \"none\" or \"tanh\", "
                              "not \"%s\"",
                              s);
    return PST_OK;
}

static enum pst_status infer_gelu(struct pst_infer *c)
{
    enum pst_status status = check_approximate(c, 1);

    return status != PST_OK ? status : pst_pw_infer_float(c);
}

static enum pst_status infer_gelu_backward(struct pst_infer *c)
{
    enum pst_status status = check_approximate(c, 2);

    return status != PST_OK ? status : pst_pw_infer_backward(c);
}

static enum pst_status gelu_vjp(struct pst_vjp *v)
{
    return pst_pw_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_gelu_backward,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                              pst_v(pst_vjp_in(v, 0)), v->node->args[1])));
}

/* --- rows ---------------------------------------------------------------- */

static bool is_relu_backward(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && pst_pw_number(&call->args[2]) == 0.0;
}

static bool is_erf(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && !is_tanh(&call->args[1]);
}

static bool is_tanh_form(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && is_tanh(&call->args[1]);
}

static bool is_erf_backward(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && !is_tanh(&call->args[2]);
}

static bool is_tanh_backward(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && is_tanh(&call->args[2]);
}

PST_PW_LOOP(tanh, 1, 0)
PST_PW_LOOP(sigmoid, 1, 0)
PST_PW_LOOP(relu, 1, 0)
PST_PW_LOOP(silu, 1, 0)
PST_PW_LOOP(gelu_erf, 1, 0)
PST_PW_LOOP(gelu_tanh, 1, 0)
PST_PW_LOOP(tanh_backward, 2, 0)
PST_PW_LOOP(sigmoid_backward, 2, 0)
PST_PW_LOOP(relu_backward, 2, 0)
PST_PW_LOOP(threshold_backward, 2, 1)
PST_PW_LOOP(silu_backward, 2, 0)
PST_PW_LOOP(gelu_erf_backward, 2, 0)
PST_PW_LOOP(gelu_tanh_backward, 2, 0)

static const struct pst_kernel tanh_kernels[] = {
    PST_PW_ROWS(tanh, pst_pw_is_f32, 4e-7),
    PST_PW_REF_KERNEL(tanh),
};
static const struct pst_kernel sigmoid_kernels[] = {
    PST_PW_ROWS(sigmoid, pst_pw_is_f32, 3e-7),
    PST_PW_REF_KERNEL(sigmoid),
};
static const struct pst_kernel relu_kernels[] = {
    PST_PW_ROWS(relu, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(relu),
};
static const struct pst_kernel silu_kernels[] = {
    PST_PW_ROWS(silu, pst_pw_is_f32, 4e-7),
    PST_PW_REF_KERNEL(silu),
};
static const struct pst_kernel gelu_kernels[] = {
    PST_PW_ROWS(gelu_erf, is_erf, 4e-7),
    PST_PW_ROWS(gelu_tanh, is_tanh_form, 4e-7),
    PST_PW_REF_KERNEL(gelu),
};
static const struct pst_kernel tanh_backward_kernels[] = {
    PST_PW_ROWS(tanh_backward, pst_pw_is_f32, 4e-7),
    PST_PW_REF_KERNEL(tanh_backward),
};
static const struct pst_kernel sigmoid_backward_kernels[] = {
    PST_PW_ROWS(sigmoid_backward, pst_pw_is_f32, 4e-7),
    PST_PW_REF_KERNEL(sigmoid_backward),
};
static const struct pst_kernel threshold_backward_kernels[] = {
    PST_PW_ROWS(relu_backward, is_relu_backward, 0.0),
    PST_PW_ROWS(threshold_backward, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(threshold_backward),
};
static const struct pst_kernel silu_backward_kernels[] = {
    PST_PW_ROWS(silu_backward, pst_pw_is_f32, 8e-7),
    PST_PW_REF_KERNEL(silu_backward),
};
static const struct pst_kernel gelu_backward_kernels[] = {
    PST_PW_ROWS(gelu_erf_backward, is_erf_backward, 8e-7),
    PST_PW_ROWS(gelu_tanh_backward, is_tanh_backward, 8e-7),
    PST_PW_REF_KERNEL(gelu_backward),
};

const struct pst_op pst_op_tanh = {
    .schema = "aten::tanh(Tensor self) -> Tensor",
    .flags = PST_OP_PASSES_ON,
    .infer = pst_infer_unary_float,
    .vjp = tanh_vjp,
};
PST_CPU_KERNELS(tanh, tanh_kernels);

const struct pst_op pst_op_sigmoid = {
    .schema = "aten::sigmoid(Tensor self) -> Tensor",
    .flags = PST_OP_PASSES_ON,
    .infer = pst_infer_unary_float,
    .vjp = sigmoid_vjp,
};
PST_CPU_KERNELS(sigmoid, sigmoid_kernels);

const struct pst_op pst_op_relu = {
    .schema = "aten::relu(Tensor self) -> Tensor",
    .flags = PST_OP_PASSES_ON,
    .infer = pst_infer_same_as_0,
    .vjp = relu_vjp,
};
PST_CPU_KERNELS(relu, relu_kernels);

const struct pst_op pst_op_silu = {
    .schema = "aten::silu(Tensor self) -> Tensor",
    .flags = PST_OP_PASSES_ON,
    .infer = pst_pw_infer_float,
    .vjp = silu_vjp,
};
PST_CPU_KERNELS(silu, silu_kernels);

const struct pst_op pst_op_gelu = {
    .schema = "aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor",
    .flags = PST_OP_PASSES_ON,
    .infer = infer_gelu,
    .vjp = gelu_vjp,
};
PST_CPU_KERNELS(gelu, gelu_kernels);

const struct pst_op pst_op_tanh_backward = {
    .schema = "aten::tanh_backward(Tensor grad_output, Tensor output) -> "
              "Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(tanh_backward, tanh_backward_kernels);

const struct pst_op pst_op_sigmoid_backward = {
    .schema = "aten::sigmoid_backward(Tensor grad_output, Tensor output) -> "
              "Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(sigmoid_backward, sigmoid_backward_kernels);

const struct pst_op pst_op_threshold_backward = {
    .schema = "aten::threshold_backward(Tensor grad_output, Tensor self, "
              "Scalar threshold) -> Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(threshold_backward, threshold_backward_kernels);

const struct pst_op pst_op_silu_backward = {
    .schema = "aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(silu_backward, silu_backward_kernels);

const struct pst_op pst_op_gelu_backward = {
    .schema = "aten::gelu_backward(Tensor grad_output, Tensor self, *, "
              "str approximate=\"none\") -> Tensor",
    .infer = infer_gelu_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(gelu_backward, gelu_backward_kernels);
