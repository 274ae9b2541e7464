// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/loss.h"

/*
 * loss = -w_y x_y for log-probabilities x. PyTorch's nll_loss operators differ
 * only in the number of dimensions that they accept, so one implementation
 * serves all.
 */

static enum pst_status nll_check(const struct pst_infer *c)
{
    const struct pst_meta *t = pst_infer_in(c, 1);

    if (t != NULL && pst_dtype_kind(t->dtype) == PST_KIND_FLOAT)
        return pst_infer_fail(c, "the target must be integers");
    return pst_classes_check(c, 0, 1, 2, 3);
}

static enum pst_status nll_infer(struct pst_infer *c)
{
    enum pst_status status = nll_check(c);

    return status != PST_OK ? status : pst_classes_set(c, 0, c->args[3].i);
}

static enum pst_status nll_forward_infer(struct pst_infer *c)
{
    enum pst_status status = nll_infer(c);

    return status != PST_OK ? status
                            : pst_infer_set(c, 1, c->out[0].dtype, 0, NULL);
}

/* Infers the backward operator (grad, target, weight, reduction, ignore_index,
 * size), which needs only the shape of the input. */
static enum pst_status nll_backward_infer(struct pst_infer *c)
{
    const struct pst_meta *g;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status != PST_OK)
        return status;
    if (c->args[5].n < 1 || c->args[5].n > PST_MAX_RANK)
        return pst_infer_fail(c, "%u dimensions", c->args[5].n);
    return pst_infer_set(c, 0, g->dtype, c->args[5].n, c->args[5].ints);
}

static void nll_ref(const struct pst_call *c)
{
    struct pst_classes p = {.x = &c->in[0],
                            .target = &c->in[1],
                            .weight = pst_classes_optional(c, 2),
                            .reduction = c->args[3].i,
                            .ignore = c->args[4].i};
    struct pst_operand *y = &c->out[0];
    double sum = 0.0, total = 0.0;

    pst_classes_shape(&p);
    for (int64_t i = 0; i < p.n * p.d; i++) {
        const int64_t k = pst_classes_target(c, &p, i);
        const double w = k < 0 ? 0.0 : pst_classes_weight(&p, k);
        double loss = 0.0;

        if (k >= 0)
            loss = -w * pst_load_f64(p.x->meta->dtype, p.x->data,
                                     pst_classes_at(&p, i, k));
        if (p.reduction == PST_REDUCE_NONE)
            pst_store_f64(y->meta->dtype, y->data, i, loss);
        sum += loss;
        total += w;
    }
    if (p.reduction != PST_REDUCE_NONE)
        pst_store_f64(y->meta->dtype, y->data, 0,
                      p.reduction == PST_REDUCE_MEAN ? sum / total : sum);
    if (c->n_out == 2)
        pst_store_f64(c->out[1].meta->dtype, c->out[1].data, 0,
                      p.reduction == PST_REDUCE_NONE && p.x->meta->rank > 1
                          ? 0.0
                          : total);
}

static void nll_backward_ref(const struct pst_call *c)
{
    struct pst_operand *dx = &c->out[0];
    const struct pst_operand *g = &c->in[0];
    struct pst_classes p = {.x = dx,
                            .target = &c->in[1],
                            .weight = pst_classes_optional(c, 2),
                            .reduction = c->args[3].i,
                            .ignore = c->args[4].i};
    double divisor = 1.0;

    pst_classes_shape(&p);
    if (p.reduction == PST_REDUCE_MEAN)
        divisor = pst_classes_divisor(c, &p);
    for (int64_t i = pst_meta_numel(dx->meta); i-- > 0;)
        pst_store_f64(dx->meta->dtype, dx->data, i, 0.0);
    for (int64_t i = 0; i < p.n * p.d; i++) {
        const int64_t k = pst_classes_target(c, &p, i);
        const int64_t at = p.reduction == PST_REDUCE_NONE ? i : 0;
        double d;

        if (k < 0)
            continue;
        d = pst_load_f64(g->meta->dtype, g->data, pst_meta_offset(g->meta, at));
        pst_store_f64(dx->meta->dtype, dx->data, pst_classes_at(&p, i, k),
                      -d * pst_classes_weight(&p, k) / divisor);
    }
}

static enum pst_status nll_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *a = v->node->args;

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(
        v, &pst_op_nll_loss_backward,
        PST_ARGS(pst_v(g), a[1], a[2], a[3], a[4], pst_ints(x->size, x->rank)));
    return pst_vjp_set(v, 0, g);
}

static const struct pst_kernel nll_kernels[] = {
    {.name = "nll_loss_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = nll_ref},
};

static const struct pst_kernel nll_backward_kernels[] = {
    {.name = "nll_loss_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = nll_backward_ref},
};

#define NLL_ROW(id, text, fn)                                                  \
    const struct pst_op pst_op_##id = {                                        \
        .schema = text,                                                        \
        .infer = fn,                                                           \
        .vjp = nll_vjp,                                                        \
    };                                                                         \
    PST_CPU_KERNELS(id, nll_kernels)

NLL_ROW(nll_loss_nd,
        "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, "
        "int reduction=1, SymInt ignore_index=-100) -> Tensor",
        nll_infer);
NLL_ROW(nll_loss,
        "aten::nll_loss(Tensor self, Tensor target, Tensor? weight=None, int "
        "reduction=1, SymInt ignore_index=-100) -> Tensor",
        nll_infer);
NLL_ROW(nll_loss2d,
        "aten::nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, "
        "int reduction=1, SymInt ignore_index=-100) -> Tensor",
        nll_infer);
NLL_ROW(nll_loss_forward,
        "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, "
        "int reduction, SymInt ignore_index) -> (Tensor output, Tensor "
        "total_weight)",
        nll_forward_infer);
NLL_ROW(nll_loss2d_forward,
        "aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, "
        "int reduction, SymInt ignore_index) -> (Tensor output, Tensor "
        "total_weight)",
        nll_forward_infer);

const struct pst_op pst_op_nll_loss_backward = {
    .schema = "penstock::nll_loss_backward(Tensor grad_output, Tensor target, "
              "Tensor? weight, int reduction, int ignore_index, int[] size) -> "
              "Tensor",
    .infer = nll_backward_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(nll_loss_backward, nll_backward_kernels);
