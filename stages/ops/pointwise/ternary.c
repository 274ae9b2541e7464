// SPDX-License-Identifier: Apache-2.0
/* Functions of three operands. */
#include "stages/ops/pointwise/pointwise.h"

static enum pst_status infer_three(struct pst_infer *c)
{
    return pst_infer_broadcast(c, 0, 0, 3, pst_result_type(c->args, 3));
}

/* Fails for integers: addcdiv returns a floating dtype. */
static enum pst_status infer_quotient(struct pst_infer *c)
{
    enum pst_status status = infer_three(c);

    if (status == PST_OK && pst_dtype_kind(c->out[0].dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "integers are not divided");
    return status;
}

/* Checks that all operands have one dtype; a weight without dimensions may have
 * another one. */
static enum pst_status infer_lerp(struct pst_infer *c)
{
    const struct pst_meta *weight = pst_infer_in(c, 2);
    enum pst_status status = pst_infer_same_dtype(c, 0, 1);

    if (status == PST_OK && weight != NULL && weight->rank > 0)
        status = pst_infer_same_dtype(c, 0, 2);
    return status != PST_OK ? status : infer_three(c);
}

#define WITH_VALUE(name, expr, whole)                                          \
    PST_PW_F64(name##_f64, 3, expr)                                            \
    PST_PW_I64(name##_i64, 3, whole)                                           \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        struct pst_pw p;                                                       \
                                                                               \
        pst_pw_init(&p, call, 0, 3);                                           \
        pst_pw_params(&p, 3, 1);                                               \
        pst_pw_run(&p, name##_f64, name##_i64);                                \
    }

WITH_VALUE(addcmul, a + p->s[0] * b * c,
           (int64_t)((uint64_t)a +
                     (uint64_t)p->k[0] * (uint64_t)b * (uint64_t)c))
WITH_VALUE(addcdiv, a + p->s[0] * b / c, a)

PST_PW_LOOP(addcmul, 3, 1)
PST_PW_FAST_ROW(addcmul,
                "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, "
                "Scalar value=1) -> Tensor",
                infer_three, addcmul, 3e-7,
                "g = grad * value; self: grad;"
                "tensor1: g * tensor2; tensor2: g * tensor1");
PST_PW_LOOP(addcdiv, 3, 1)
PST_PW_FAST_ROW(addcdiv,
                "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, "
                "Scalar value=1) -> Tensor",
                infer_quotient, addcdiv, 3e-7,
                "g = grad * value / tensor2; self: grad; tensor1: g;"
                "tensor2: -g * (tensor1 / tensor2)");

/* Interpolates from the nearer end, so that weight 1 returns exactly `end`. */
PST_PW_F64(lerp_f64, 3, c < 0.5 ? a + c * (b - a) : b - (b - a) * (1.0 - c))
PST_PW_REF(lerp, 0, 3, lerp_f64, NULL)
PST_PW_LOOP(lerp, 3, 0)
PST_PW_FAST_ROW(lerp_Scalar,
                "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
                infer_lerp, lerp, 3e-7,
                "self: grad * (1 - weight); end: grad * weight");
PST_PW_FAST_ROW(lerp_Tensor,
                "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
                infer_lerp, lerp, 3e-7,
                "self: grad * (1 - weight); end: grad * weight;"
                "weight: grad * (end - self)");
