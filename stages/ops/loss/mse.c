// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/loss.h"

/* mse_loss: (a - b)^2, its mean or its sum; a and b broadcast. */

static enum pst_status mse_infer(struct pst_infer *c)
{
    const enum pst_dtype dtype = pst_result_type(c->args, 2);
    const int64_t reduction = c->args[2].i;
    enum pst_status status = pst_infer_broadcast(c, 0, 0, 2, dtype);

    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "not defined for %s", pst_dtype_name(dtype));
    if (reduction < PST_REDUCE_NONE || reduction > PST_REDUCE_SUM)
        return pst_infer_fail(c, "reduction %d is none of 0, 1, 2",
                              (int)reduction);
    return reduction == PST_REDUCE_NONE ? PST_OK
                                        : pst_infer_set(c, 0, dtype, 0, NULL);
}

/* Infers the backward operator (grad, self, target, reduction): the result has
 * the shape to which self and target broadcast. */
static enum pst_status mse_backward_infer(struct pst_infer *c)
{
    const struct pst_meta *g;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    return status != PST_OK ? status
                            : pst_infer_broadcast(c, 0, 1, 2, g->dtype);
}

/* --- reference ---------------------------------------------------------- */

/* Returns row-major element i of `shape` in x, which broadcasts to it. */
static double element_at(const struct pst_operand *x,
                         const struct pst_meta *shape, int64_t i)
{
    const unsigned lead = shape->rank - x->meta->rank;
    int64_t offset = 0;

    for (unsigned d = shape->rank; d-- > 0;) {
        if (d >= lead && x->meta->size[d - lead] != 1)
            offset += i % shape->size[d] * x->meta->stride[d - lead];
        i /= shape->size[d];
    }
    return pst_load_f64(x->meta->dtype, x->data, offset);
}

static void mse_ref(const struct pst_call *c)
{
    const int64_t reduction = c->args[2].i;
    struct pst_operand *y = &c->out[0];
    struct pst_meta shape;
    double sum = 0.0;
    int64_t n;

    if (!pst_meta_broadcast(c->in[0].meta, c->in[1].meta, &shape))
        return;
    n = pst_meta_numel(&shape);
    for (int64_t i = 0; i < n; i++) {
        const double d =
            element_at(&c->in[0], &shape, i) - element_at(&c->in[1], &shape, i);

        if (reduction == PST_REDUCE_NONE)
            pst_store_f64(y->meta->dtype, y->data, i, d * d);
        sum += d * d;
    }
    if (reduction == PST_REDUCE_MEAN)
        sum /= (double)n;
    if (reduction != PST_REDUCE_NONE)
        pst_store_f64(y->meta->dtype, y->data, 0, sum);
}

static void mse_backward_ref(const struct pst_call *c)
{
    const int64_t reduction = c->args[3].i;
    struct pst_operand *dx = &c->out[0];
    const struct pst_operand *g = &c->in[0];
    const int64_t n = pst_meta_numel(dx->meta);

    for (int64_t i = 0; i < n; i++) {
        const int64_t k = reduction == PST_REDUCE_NONE ? i : 0;
        double d = 2.0 * pst_load_f64(g->meta->dtype, g->data,
                                      pst_meta_offset(g->meta, k));

        if (reduction == PST_REDUCE_MEAN)
            d /= (double)n;
        d *= element_at(&c->in[1], dx->meta, i) -
             element_at(&c->in[2], dx->meta, i);
        pst_store_f64(dx->meta->dtype, dx->data, i, d);
    }
}

/* --- fast kernels: f32, equal shapes, reduced --------------------------- */

static bool fits(const struct pst_call *c, unsigned first)
{
    return c->in[first].meta->dtype == PST_F32 &&
           pst_meta_same(c->in[first].meta, c->in[first + 1].meta) &&
           c->args[first + 2].i != PST_REDUCE_NONE;
}

static bool forward_fits(const struct pst_call *c)
{
    return fits(c, 0);
}

static bool backward_fits(const struct pst_call *c)
{
    return fits(c, 1) && c->in[0].meta->dtype == PST_F32;
}

static void forward_f32(const struct pst_call *c,
                        const struct pst_loss_loops *loops)
{
    const int64_t n = pst_meta_numel(c->in[0].meta);
    double sum = loops->squares(n, c->in[0].data, c->in[1].data);

    if (c->args[2].i == PST_REDUCE_MEAN)
        sum /= (double)n;
    *(float *)c->out[0].data = (float)sum;
}

static void backward_f32(const struct pst_call *c,
                         const struct pst_loss_loops *loops)
{
    const int64_t n = pst_meta_numel(c->out[0].meta);
    double s = 2.0 * (double)*(const float *)c->in[0].data;

    if (c->args[3].i == PST_REDUCE_MEAN)
        s /= (double)n;
    loops->difference(n, c->in[1].data, c->in[2].data, (float)s,
                      c->out[0].data);
}

#define RUN(suffix, set)                                                       \
    static void mse_f32_##suffix(const struct pst_call *c)                     \
    {                                                                          \
        forward_f32(c, &pst_loss_loops_##suffix);                              \
    }                                                                          \
    static void mse_backward_f32_##suffix(const struct pst_call *c)            \
    {                                                                          \
        backward_f32(c, &pst_loss_loops_##suffix);                             \
    }
PST_SIMD_EACH(RUN)

static const struct pst_kernel mse_kernels[] = {
    PST_SIMD_ROWS("mse_loss_f32", mse_f32, PST_D(F32), 0, forward_fits, NULL,
                  1e-6),
    {.name = "mse_loss_ref",
     .dtypes = PST_D_ANY,
     .flags = PST_K_STRIDED,
     .run = mse_ref},
};

static const struct pst_kernel mse_backward_kernels[] = {
    PST_SIMD_ROWS("mse_loss_backward_f32", mse_backward_f32, PST_D(F32),
                  PST_K_INPLACE_1, backward_fits, NULL, 1e-6),
    {.name = "mse_loss_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = mse_backward_ref},
};

/* The gradient of the target is the negated gradient of the input. */
static enum pst_status mse_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    const struct pst_arg *a = v->node->args;

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(v, &pst_op_mse_loss_backward,
                     PST_ARGS(pst_v(g), a[0], a[1], a[2]));
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, pst_vjp_sum_to(v, g, &pst_vjp_in(v, 0)->meta));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(
            v, 1,
            pst_vjp_sum_to(v, pst_vjp_neg(v, g), &pst_vjp_in(v, 1)->meta));
    return v->build.status;
}

const struct pst_op pst_op_mse_loss = {
    .schema = "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> "
              "Tensor",
    .infer = mse_infer,
    .vjp = mse_vjp,
};
PST_CPU_KERNELS(mse_loss, mse_kernels);

const struct pst_op pst_op_mse_loss_backward = {
    .schema = "penstock::mse_loss_backward(Tensor grad_output, Tensor self, "
              "Tensor target, int reduction) -> Tensor",
    .infer = mse_backward_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(mse_loss_backward, mse_backward_kernels);
