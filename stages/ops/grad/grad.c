// SPDX-License-Identifier: Apache-2.0
/* Operators that gradient passes need in addition to those of PyTorch. */
#include "stages/ops/view/view.h"

/* --- accumulate_grad ------------------------------------------------------ */

static enum pst_status infer_accumulate(struct pst_infer *c)
{
    const struct pst_meta *grad, *contribution;
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &grad);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &contribution);
    if (status != PST_OK)
        return status;
    if (!pst_meta_same_shape(grad, contribution) ||
        pst_dtype_kind(grad->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "%s cannot be added to %s",
                              pst_meta_text(contribution, a),
                              pst_meta_text(grad, b));
    c->n_outs = 0;
    return PST_OK;
}

static void accumulate_grad(const struct pst_call *c)
{
    pst_view_copy(c->pool, c->in[1].meta, c->in[1].data, c->in[0].meta,
                  c->in[0].data, true);
}

static void accumulate_grad_ref(const struct pst_call *c)
{
    pst_view_copy_ref(c->in[1].meta, c->in[1].data, c->in[0].meta,
                      c->in[0].data, true);
}

static const struct pst_kernel accumulate_grad_kernels[] = {
    {"accumulate_grad", PST_ISA_ANY, PST_D_FLOAT, PST_K_STRIDED, NULL, NULL,
     accumulate_grad, 0.0},
    {"accumulate_grad_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_STRIDED, NULL, NULL,
     accumulate_grad_ref, 0.0},
};

/* grad += contribution. No other operator writes to an input. */
const struct pst_op pst_op_accumulate_grad = {
    .schema = "penstock::accumulate_grad(Tensor(a!) grad, "
              "Tensor contribution) -> ()",
    .flags = PST_OP_EFFECT,
    .infer = infer_accumulate,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(accumulate_grad, accumulate_grad_kernels);

/* --- with_history --------------------------------------------------------- */

static enum pst_status infer_with_history(struct pst_infer *c)
{
    const struct pst_meta *data, *history;
    enum pst_status status = pst_infer_tensor(c, 0, &data);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &history);
    if (status != PST_OK)
        return status;
    if (pst_meta_numel(data) != pst_meta_numel(history) ||
        data->dtype != history->dtype)
        return pst_infer_fail(c, "data and history differ in size or dtype");
    return pst_infer_view(c, 0, 0, data, 0);
}

static enum pst_status with_history_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 1,
        pst_vjp_reshape_as(v, pst_vjp_grad(v, 0), &pst_vjp_in(v, 1)->meta));
}

/* Replays a write that autograd does not see (x.data, no_grad): the result has
 * the value of `data`; its gradient goes to `history`, the tensor before the
 * write. */
const struct pst_op pst_op_with_history = {
    .schema = "penstock::with_history(Tensor(a) data, Tensor history) -> "
              "Tensor(a)",
    .flags = PST_OP_VIEW,
    .infer = infer_with_history,
    .vjp = with_history_vjp,
};
