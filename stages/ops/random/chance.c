// SPDX-License-Identifier: Apache-2.0
/* Checks of the parameters of random numbers: a value that PyTorch rejects is a
 * fault of the step. */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"

#include <math.h>

/* --- choices of 0 or 1 ---------------------------------------------------- */

static enum pst_status chosen_infer(struct pst_infer *c)
{
    const struct pst_meta *x, *like;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &like);
    if (status != PST_OK)
        return status;
    return pst_infer_set_like(c, 0, like->dtype, x);
}

static void chosen_ref(const struct pst_call *c)
{
    const struct pst_operand *below = &c->in[0], *p = &c->in[1];
    struct pst_operand *out = &c->out[0];

    for (int64_t i = 0; i < pst_meta_numel(p->meta); i++) {
        const double x = pst_load_f64(p->meta->dtype, p->data, i);

        if (!(x >= 0.0 && x <= 1.0))
            pst_call_fault(c, PST_FAULT_PROBABILITY, {.g = x});
    }
    for (int64_t i = 0; i < pst_meta_numel(out->meta); i++)
        pst_store_i64(out->meta->dtype, out->data, i,
                      pst_load_i64(below->meta->dtype, below->data, i));
}

static const struct pst_kernel chosen_kernels[] = {
    {.name = "chosen_ref", .dtypes = PST_D_ANY, .run = chosen_ref},
};

/* Returns 1 where a random number is below its probability p, else 0, in the
 * dtype of `like`. */
const struct pst_op pst_op_chosen = {
    .schema = "penstock::chosen(Tensor below, Tensor p, Tensor like) -> Tensor",
    .flags = PST_OP_ORIGIN,
    .infer = chosen_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(chosen, chosen_kernels);

/* --- standard deviations, rates ------------------------------------------- */

static void not_negative_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0];

    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        const double value = pst_load_f64(x->meta->dtype, x->data, i);

        if (!(value >= 0.0))
            pst_call_fault(c, PST_FAULT_NEGATIVE, {.g = value});
        pst_store_f64(x->meta->dtype, c->out[0].data, i, value);
    }
}

static const struct pst_kernel not_negative_kernels[] = {
    {.name = "not_negative_ref",
     .dtypes = PST_D_FLOAT,
     .run = not_negative_ref},
};

/* Copies self; an element that is negative or NaN is a fault with this message.
 * No gradient passes through the operator. */
const struct pst_op pst_op_not_negative = {
    .schema = "penstock::not_negative(Tensor self, str message) -> Tensor",
    .flags = PST_OP_ORIGIN,
    .infer = pst_infer_same_as_0,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(not_negative, not_negative_kernels);

/* --- weights of a choice among many --------------------------------------- */

static enum pst_status weights_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank < 1 || x->rank > 2 ||
        pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "weights are a floating vector or matrix");
    return pst_infer_set_like(c, 0, x->dtype == PST_F64 ? PST_F64 : PST_F32, x);
}

static void weights_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0];
    struct pst_operand *out = &c->out[0];
    const int64_t n = x->meta->size[x->meta->rank - 1];
    double sum = 0.0;

    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        const double w = pst_load_f64(x->meta->dtype, x->data, i);

        if (!(w >= 0.0 && isfinite(w)))
            pst_call_fault(c, PST_FAULT_WEIGHT, {.g = w});
        sum = (i % n == 0 ? 0.0 : sum) + w;
        if (i % n == n - 1 && !(sum > 0.0))
            pst_call_fault(c, PST_FAULT_WEIGHTS_ZERO, {.i = i / n});
        pst_store_f64(out->meta->dtype, out->data, i, w);
    }
}

static const struct pst_kernel weights_kernels[] = {
    {.name = "weights_ref", .dtypes = PST_D_FLOAT, .run = weights_ref},
};

/* Copies the weights of multinomial, in f32 for 16-bit dtypes. A weight that is
 * negative or not finite is a fault, and so is a row without a positive weight.
 * No gradient passes through the operator. */
const struct pst_op pst_op_weights = {
    .schema = "penstock::weights(Tensor self) -> Tensor",
    .flags = PST_OP_ORIGIN,
    .infer = weights_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(weights, weights_kernels);
