// SPDX-License-Identifier: Apache-2.0
/* Operators for special functions and their gradients. A function that is
 * neither in libm nor a short formula is in special_math.c. */
#include "stages/ops/pointwise/special/special_math.h"

#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define SQRT_1_2 0.70710678118654752440

#define FUNCTION(name, text, expr, gradient)                                   \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, NULL)                                   \
    PST_PW_ROW(name, text "(Tensor self) -> Tensor", pst_infer_unary_float,    \
               name, gradient)

/* Defines a function that also has a loop of simd/loops.def. */
#define FAST(name, text, expr, gradient)                                       \
    PST_PW_F64(name##_f64, 1, expr)                                            \
    PST_PW_REF(name, 0, 1, name##_f64, NULL)                                   \
    PST_PW_LOOP(name, 1, 0)                                                    \
    PST_PW_FAST_ROW(name, text "(Tensor self) -> Tensor",                      \
                    pst_infer_unary_float, name, 2e-7, gradient)

FAST(lgamma, "lgamma", lgamma(a), "self: grad * digamma(self)");
FAST(digamma, "digamma", pst_math_digamma(a),
     "self: grad * polygamma(1, self)");
FAST(erfinv, "erfinv", pst_math_erfinv(a),
     "self: grad * (exp(result * result) * 0.88622692545275801365)");
FUNCTION(i0, "i0", pst_math_i0(a), "self: grad * special_i1(self)");
FUNCTION(special_i0e, "special_i0e", pst_math_i0e(a),
         "self: grad * (special_i1e(self) - sgn(self) * result)");
FUNCTION(special_i1, "special_i1", pst_math_i1(a),
         "self: grad * (self == 0 ? 0.5 : i0(self) - result / self)");
FUNCTION(special_i1e, "special_i1e", pst_math_i1e(a),
         "self: grad * (self == 0 ? 0.5 : special_i0e(self) - "
         "result * (sgn(self) + 1 / self))");
FAST(special_entr, "special_entr",
     a == 0.0  ? 0.0
     : a < 0.0 ? -INFINITY
               : -a * log(a),
     "self: grad * (-1 - log(self))");
FUNCTION(special_erfcx, "special_erfcx", pst_math_erfcx(a),
         "self: grad * (self * result * 2 - 1.12837916709551257390)");
FUNCTION(special_ndtr, "special_ndtr", 0.5 * erfc(-a * SQRT_1_2),
         "self: grad * (exp(self * self * -0.5) * 0.39894228040143267794)");
FUNCTION(special_log_ndtr, "special_log_ndtr", pst_math_log_ndtr(a),
         "self: grad * (exp(self * self * -0.5 - result) * "
         "0.39894228040143267794)");
FUNCTION(special_ndtri, "special_ndtri", pst_math_ndtri(a),
         "self: grad * (exp(result * result * 0.5) * 2.50662827463100050242)");

PST_PW_F64(polygamma_f64, 1, pst_math_polygamma((int64_t)p->s[0], a))

static void polygamma_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 1, 1);
    pst_pw_params(&p, 0, 1);
    pst_pw_run(&p, polygamma_f64, NULL);
}

static enum pst_status infer_polygamma(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 1, &x);

    if (status != PST_OK)
        return status;
    if (c->args[0].i < 0)
        return pst_infer_fail(c, "n is negative");
    return pst_infer_set_like(c, 0, pst_float_type(x->dtype), x);
}

/* Calls the loop with the arguments shifted by one, because self is argument 1
 * and loops read their operands from argument 0 on. */
static void first_derivative(const struct pst_call *call, pst_loop_fn loop)
{
    struct pst_call self = *call;

    self.args++;
    pst_pw_loop(&self, 1, 1, 0, loop);
}

static bool is_first_f32(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && call->args[0].i == 1;
}

#define TRIGAMMA(suffix, set)                                                  \
    static void trigamma_##suffix(const struct pst_call *call)                 \
    {                                                                          \
        first_derivative(call, pst_loop_trigamma_##suffix);                    \
    }
PST_SIMD_EACH(TRIGAMMA)

static const struct pst_kernel polygamma_kernels[] = {
    PST_SIMD_ROWS("trigamma_f32", trigamma, PST_D_ANY,
                  PST_PW_FLAGS | PST_PW_LOOPS, is_first_f32, NULL, 2e-7),
    PST_PW_REF_KERNEL(polygamma),
};
PST_PW_ROW_OF(polygamma, "polygamma(int n, Tensor self) -> Tensor",
              infer_polygamma, polygamma,
              "self: grad * polygamma(n + 1, self)");

PST_COMPOSE(
    mvlgamma, "mvlgamma(Tensor self, int p) -> Tensor",
    "at = unsqueeze(self, -1) + arange.start_step((1 - p) / 2, 0.5, 0.5, "
    "dtype=float_type(self));"
    "sum.dim_IntList(lgamma(at), [-1]) + p * (p - 1) / 4 * log_of(pi)");

/* polygamma_(self, n) has its arguments in another order than polygamma(n,
 * self); no other in-place operator does. */
PST_COMPOSE(polygamma_of,
            "polygamma.Tensor_default(Tensor self, int n) -> "
            "Tensor",
            "polygamma(n, self)");
