// SPDX-License-Identifier: Apache-2.0
/*
 * Switch of batch and instance norm between training and evaluation
 * (stages/passes/replay.h). In training it returns the statistic of the batch;
 * in evaluation the running statistic or, for a variance, 1 / sqrt(running +
 * eps).
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"

#include <math.h>

static enum pst_status mode_infer(struct pst_infer *c)
{
    const struct pst_meta *now, *running;
    enum pst_status status = pst_infer_tensor(c, 0, &now);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &running);
    if (status != PST_OK)
        return status;
    if (running->rank != 1 || now->rank < 1 ||
        now->size[now->rank - 1] != running->size[0])
        return pst_infer_fail(c, "the running statistics do not fit");
    return c->args[3].b ? pst_infer_view(c, 0, 0, now, 0)
                        : pst_infer_set_like(c, 0, now->dtype, now);
}

static void mode_ref(const struct pst_call *c)
{
    const struct pst_operand *from = &c->in[c->args[3].b ? 0 : 1];
    const int64_t n = pst_meta_numel(from->meta);
    const bool root = !c->args[3].b && c->args[2].kind == PST_ARG_FLOAT;
    struct pst_operand *to = &c->out[0];

    for (int64_t i = pst_meta_numel(to->meta); i-- > 0;) {
        double x = pst_load_f64(from->meta->dtype, from->data,
                                pst_meta_offset(from->meta, i % n));

        if (root)
            x = 1.0 / sqrt(x + c->args[2].f);
        pst_store_f64(to->meta->dtype, to->data, i, x);
    }
}

static enum pst_status mode_vjp(struct pst_vjp *v)
{
    if (!v->node->args[3].b)
        return v->build.status;
    return pst_vjp_set(v, 0, pst_vjp_grad(v, 0));
}

static const struct pst_kernel mode_kernels[] = {
    {.name = "norm_mode_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = mode_ref},
};

const struct pst_op pst_op_norm_mode = {
    .schema = "penstock::norm_mode(Tensor now, Tensor running, float? eps, "
              "bool training) -> Tensor",
    .flags = PST_OP_MAYBE_VIEW,
    .infer = mode_infer,
    .vjp = mode_vjp,
};
PST_CPU_KERNELS(norm_mode, mode_kernels);
