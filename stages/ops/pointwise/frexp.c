// SPDX-License-Identifier: Apache-2.0
/* Splits numbers into a mantissa with magnitude in [0.5, 1) and an exponent. */
#include "stages/ops/core/infer.h"
#include "stages/ops/formula/formula.h"

#include <math.h>

static void frexp_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0];

    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        int exponent = 0;
        const double mantissa =
            frexp(pst_load_f64(x->meta->dtype, x->data, i), &exponent);

        pst_store_f64(x->meta->dtype, c->out[0].data, i, mantissa);
        pst_store_i64(PST_I32, c->out[1].data, i, exponent);
    }
}

static enum pst_status infer_frexp(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK && pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants a floating tensor, got %s",
                              pst_dtype_name(x->dtype));
    if (status == PST_OK)
        status = pst_infer_set_like(c, 0, x->dtype, x);
    return status != PST_OK ? status : pst_infer_set_like(c, 1, PST_I32, x);
}

static const struct pst_kernel frexp_kernels[] = {
    {"frexp_ref", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, NULL, frexp_ref, 0.0},
};

const struct pst_op pst_op_frexp_Tensor = {
    .schema =
        "aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)",
    .infer = infer_frexp,
    .vjp = pst_vjp_formula,
    .formula = "self: grad * cast(pow.Scalar(2.0, -result1), dtype(self))",
};
PST_CPU_KERNELS(frexp_Tensor, frexp_kernels);
