// SPDX-License-Identifier: Apache-2.0
/*
 * Selects one of two operands, for training or for evaluation, without copying.
 * Compositions use this operator where a result differs between the two modes.
 * The importer emits it in training mode; model.eval() switches it to
 * evaluation (stages/passes/replay.h).
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"

static enum pst_status by_mode_infer(struct pst_infer *c)
{
    const struct pst_meta *x[2];
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x[0]);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &x[1]);
    if (status != PST_OK)
        return status;
    if (!pst_meta_same(x[0], x[1]))
        return pst_infer_fail(c, "%s is not like %s", pst_meta_text(x[0], a),
                              pst_meta_text(x[1], b));
    return pst_infer_view(c, 0, c->args[2].b ? 0 : 1, x[c->args[2].b ? 0 : 1],
                          0);
}

static void by_mode_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[c->args[2].b ? 0 : 1];

    pst_copy_strided(x->meta, x->data, c->out[0].meta, c->out[0].data);
}

static enum pst_status by_mode_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(v, v->node->args[2].b ? 0 : 1, pst_vjp_grad(v, 0));
}

static const struct pst_kernel by_mode_kernels[] = {
    {.name = "by_mode_ref",
     .dtypes = PST_D_ANY,
     .flags = PST_K_STRIDED,
     .run = by_mode_ref},
};

const struct pst_op pst_op_by_mode = {
    .schema = "penstock::by_mode(Tensor train, Tensor eval, bool training) -> "
              "Tensor",
    .flags = PST_OP_MAYBE_VIEW | PST_OP_DROPOUT | PST_OP_ORIGIN,
    .infer = by_mode_infer,
    .vjp = by_mode_vjp,
};
PST_CPU_KERNELS(by_mode, by_mode_kernels);
