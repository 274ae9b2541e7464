// SPDX-License-Identifier: Apache-2.0
/* Piecewise activations, most with numbers as parameters. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

/* Defines a row NAME(self, parameters); the parameters are s[k]. */
#define PIECES(name, n_params, text, expr, gradient)                           \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF_PARAMS(name, 1, n_params, name##_f64, NULL)                     \
    PST_PW_LOOP(name, 1, n_params)                                             \
    PST_PW_FAST_ROW(name, text " -> Tensor", pst_pw_infer_float, name, 1e-6,   \
                    gradient)

PIECES(leaky_relu, 1, "leaky_relu(Tensor self, Scalar negative_slope=0.01)",
       a > 0.0 ? a : a * p->s[0],
       "self: self > 0 ? grad : grad * negative_slope");
PIECES(elu, 3,
       "elu(Tensor self, Scalar alpha=1, Scalar scale=1, "
       "Scalar input_scale=1)",
       a <= 0.0 ? expm1(a * p->s[2]) * p->s[0] * p->s[1] : a * p->s[1],
       "self: self <= 0 ? grad * (exp(self * input_scale) * "
       "(alpha * scale * input_scale)) : grad * scale");
PIECES(hardshrink, 1, "hardshrink(Tensor self, Scalar lambd=0.5)",
       a >= -p->s[0] && a <= p->s[0] ? 0.0 : a,
       "self: logical_and(self >= -lambd, self <= lambd) ? 0 : grad");
PIECES(softshrink, 1, "softshrink(Tensor self, Scalar lambd=0.5)",
       a > p->s[0]    ? a - p->s[0]
       : a < -p->s[0] ? a + p->s[0]
                      : a * 0.0,
       "self: logical_and(self >= -lambd, self <= lambd) ? 0 : grad");
PIECES(hardsigmoid, 0, "hardsigmoid(Tensor self)",
       a <= -3.0  ? 0.0
       : a >= 3.0 ? 1.0
                  : (a + 3.0) / 6.0,
       /* PyTorch rounds 1/6 to f32 */
       "self: abs(self) < 3 ? grad * 0.1666666716337204 : 0");
PIECES(hardswish, 0, "hardswish(Tensor self)",
       a <= -3.0  ? a * 0.0
       : a >= 3.0 ? a
                  : a * ((a + 3.0) / 6.0),
       "self: self <= -3 ? 0 : (self >= 3 ? grad : "
       "grad * (self / 3 + 0.5))");
PIECES(softplus, 2, "softplus(Tensor self, Scalar beta=1, Scalar threshold=20)",
       a * p->s[0] > p->s[1] ? a : log1p(exp(a * p->s[0])) / p->s[0],
       "self: self * beta > threshold ? grad : grad * sigmoid(self * beta)");
PIECES(mish, 0, "mish(Tensor self)", a *tanh(log1p(exp(a))),
       "t = tanh(softplus(self));"
       "self: grad * (t + self * sigmoid(self) * (1 - t * t))");
PIECES(log_sigmoid, 0, "log_sigmoid(Tensor self)",
       fmin(a, 0.0) - log1p(exp(-fabs(a))), "self: grad * sigmoid(-self)");

PST_COMPOSE(log_sigmoid_forward,
            "log_sigmoid_forward(Tensor self) -> "
            "(Tensor output, Tensor buffer)",
            "log_sigmoid(self), exp(-abs(self))");
PST_COMPOSE(celu, "celu(Tensor self, Scalar alpha=1.) -> Tensor",
            "elu(self, alpha, 1, 1 / alpha)");
PST_COMPOSE(selu, "selu(Tensor self) -> Tensor",
            "elu(self, 1.6732632423543772, 1.0507009873554805)");

/* --- piecewise, also for integers ----------------------------------------- */

PST_PW_F64(threshold_f64, 1, a <= p->s[0] ? p->s[1] : a)
PST_PW_I64(threshold_i64, 1, a <= p->k[0] ? p->k[1] : a)
PST_PW_REF_PARAMS(threshold, 1, 2, threshold_f64, threshold_i64)
PST_PW_LOOP(threshold, 1, 2)
PST_PW_FAST_ROW(
    threshold,
    "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    pst_infer_same_as_0, threshold, 0.0, "self: self <= threshold ? 0 : grad");

PST_PW_F64(hardtanh_f64, 1, a<p->s[0] ? p->s[0] : a> p->s[1] ? p->s[1] : a)
PST_PW_I64(hardtanh_i64, 1, PST_MIN(PST_MAX(a, p->k[0]), p->k[1]))
PST_PW_REF_PARAMS(hardtanh, 1, 2, hardtanh_f64, hardtanh_i64)
PST_PW_LOOP(hardtanh, 1, 2)
PST_PW_FAST_ROW(
    hardtanh,
    "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> "
    "Tensor",
    pst_infer_same_as_0, hardtanh, 0.0,
    "self: logical_or(self <= min_val, self >= max_val) ? 0 : grad");
PST_COMPOSE(relu6, "relu6(Tensor self) -> Tensor", "hardtanh(self, 0, 6)");

/* --- with two operands ---------------------------------------------------- */

PST_PW_F64(prelu_f64, 2, a > 0.0 ? a : a * b)
PST_PW_REF(prelu, 0, 2, prelu_f64, NULL)
PST_PW_LOOP(prelu, 2, 0)
PST_PW_FAST_ROW(_prelu_kernel,
                "_prelu_kernel(Tensor self, Tensor weight) -> Tensor",
                pst_infer_binary, prelu, 0.0,
                "self: self > 0 ? grad : grad * weight;"
                "weight: self > 0 ? 0 : grad * self");

/* The weight is one number, or a number for each channel (dimension 1). */
static enum pst_status prelu_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *weight = pst_rewrite_in(w, 1);
    struct pst_extent size[PST_MAX_RANK];
    const unsigned rank = PST_MAX(x->meta.rank, 1u);

    for (unsigned d = 0; d < rank; d++)
        size[d] = pst_extent(1);
    size[rank > 1 ? 1 : 0] = pst_extent_numel(w->build, weight);
    weight = pst_rw_reshape(w, weight, x->meta.rank, size);
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op__prelu_kernel, PST_ARGS(pst_v(x), pst_v(weight))));
}

PST_REWRITE(prelu, "aten::prelu(Tensor self, Tensor weight) -> Tensor",
            prelu_rewrite);
PST_COMPOSE(glu, "glu(Tensor self, int dim=-1) -> Tensor",
            "halves = chunk(self, 2, dim);"
            "halves[0] * sigmoid(halves[1])");

/* --- rrelu: a random slope below zero while training ---------------------- */

PST_COMPOSE(
    rrelu_with_noise_functional,
    "rrelu_with_noise_functional(Tensor self, Tensor noise, "
    "Scalar lower=0.125, Scalar upper=0.33333333333333331, "
    "bool training=False, Generator? generator=None) -> "
    "(Tensor, Tensor noise_out)",
    "slope = self <= 0 ? detach(rand_like(self)) * (upper - lower) + lower : 1;"
    "even = leaky_relu(self, (lower + upper) / 2);"
    "training ? by_mode(self * slope, even, True) : even,"
    "training ? slope : noise");
PST_COMPOSE(
    rrelu,
    "rrelu(Tensor self, Scalar lower=0.125, "
    "Scalar upper=0.33333333333333331, bool training=False, "
    "Generator? generator=None) -> Tensor",
    "rrelu_with_noise_functional(self, self, lower, upper, training)[0]");

/* Writes the drawn noise to argument 1. */
static enum pst_status rrelu_rewrite(struct pst_rewrite *w)
{
    struct pst_rewrite f;
    const struct pst_op *op = &pst_op_rrelu_with_noise_functional;

    if (pst_op_rewrite(op, w->build, w->args, w->schema->n_args, &f) != PST_OK)
        return w->build->status;
    w->writes[1] = w->args[4].b ? f.outs[1] : NULL;
    return pst_rewrite_out(w, 0, f.outs[0]);
}

PST_REWRITE(rrelu_with_noise,
            "aten::rrelu_with_noise(Tensor self, Tensor noise, "
            "Scalar lower=0.125, Scalar upper=0.33333333333333331, "
            "bool training=False, Generator? generator=None) -> Tensor",
            rrelu_rewrite);
