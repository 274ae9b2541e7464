// SPDX-License-Identifier: Apache-2.0
/* Products over all elements or one dimension. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/reduce/fold.h"
#include "stages/ops/reduce/lane.h"
#include "stages/ops/reduce/reduce.h"

/* Returns the lanes along dimension `arg`; without one, all elements are one
 * lane. */
static struct pst_lane lane_along(const struct pst_meta *x,
                                  const struct pst_arg *arg)
{
    if (arg != NULL && arg->kind == PST_ARG_INT)
        return pst_lane_of(x, arg->i);
    return pst_lane_all(x);
}

/* Multiplies integers as integers, which wrap around. An empty product is 1. */
static void prod(const struct pst_call *c, const struct pst_arg *dim)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const struct pst_lane l = lane_along(x->meta, dim);
    const bool whole = pst_dtype_kind(out->meta->dtype) != PST_KIND_FLOAT;

    for (int64_t k = 0; k < pst_lane_count(&l); k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        double y = 1.0;
        uint64_t bits = 1;

        for (int64_t i = 0; i < l.size; i++) {
            const int64_t at = first + i * l.inner;

            if (whole)
                bits *=
                    (uint64_t)pst_reduce_load_whole(out->meta->dtype, x, at);
            else
                y *= pst_reduce_load(out->meta->dtype, x, at);
        }
        if (whole)
            pst_store_i64(out->meta->dtype, out->data, k, (int64_t)bits);
        else
            pst_store_f64(out->meta->dtype, out->data, k, y);
    }
}

/* Sets the gradient of each element: g times the product of all other elements,
 * which is exact if an element is 0. Without a zero it is g y / x as in
 * PyTorch, so that infinities and NaN agree. */
static void backward_lane(const struct pst_call *c, double g, int64_t first,
                          const struct pst_lane *l)
{
    const struct pst_operand *x = &c->in[1], *out = &c->out[0];
    double product = 1.0;
    int64_t zeros = 0;

    for (int64_t i = 0; i < l->size; i++) {
        const double a =
            pst_load_f64(x->meta->dtype, x->data, first + i * l->inner);

        zeros += a == 0.0;
        product *= a == 0.0 ? 1.0 : a;
    }
    for (int64_t i = 0; i < l->size; i++) {
        const int64_t at = first + i * l->inner;
        const double a = pst_load_f64(x->meta->dtype, x->data, at);
        double y = 0.0;

        if (zeros == 0)
            y = g * (product / a);
        else if (zeros == 1 && a == 0.0)
            y = g * product;
        pst_store_f64(out->meta->dtype, out->data, at, y);
    }
}

static void prod_backward_ref(const struct pst_call *c)
{
    const struct pst_operand *g = &c->in[0];
    const struct pst_lane l = lane_along(c->in[1].meta, &c->args[2]);

    for (int64_t k = 0; k < pst_lane_count(&l); k++)
        backward_lane(c, pst_load_f64(g->meta->dtype, g->data, k),
                      pst_lane_first(&l, k, l.size), &l);
}

static void prod_ref(const struct pst_call *c)
{
    prod(c, NULL);
}

static void prod_dim_ref(const struct pst_call *c)
{
    prod(c, &c->args[1]);
}

static enum pst_dtype result_dtype(const struct pst_infer *c, unsigned arg)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    return pst_infer_dtype(
        c, arg,
        x != NULL && pst_dtype_kind(x->dtype) == PST_KIND_FLOAT ? x->dtype
                                                                : PST_I64);
}

static enum pst_status infer_prod(struct pst_infer *c)
{
    return pst_reduce_infer(c, 0, result_dtype(c, 1), PST_REDUCE_ALL, -1);
}

static enum pst_status infer_prod_dim(struct pst_infer *c)
{
    return pst_reduce_infer(c, 0, result_dtype(c, 3), 1, 2);
}

PST_FOLD_ONE(prod, PST_REDUCE_ALL, prod, NULL)
PST_FOLD_ONE(prod_dim, 1, prod, NULL)

static const struct pst_kernel prod_kernels[] = {
    PST_FOLD_ROWS(prod, prod_fits, 0, 1e-5),
    {"prod_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, prod_ref, 0.0},
};
static const struct pst_kernel prod_dim_kernels[] = {
    PST_FOLD_ROWS(prod_dim, prod_dim_fits, 0, 1e-5),
    {"prod_dim_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, prod_dim_ref, 0.0},
};
static const struct pst_kernel prod_backward_kernels[] = {
    {"prod_backward_ref", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, NULL,
     prod_backward_ref, 0.0},
};

const struct pst_op pst_op_prod = {
    .schema = "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    .infer = infer_prod,
    .vjp = pst_vjp_formula,
    .formula = "self: prod_backward(cast(grad, dtype(self)), self)",
};
PST_CPU_KERNELS(prod, prod_kernels);

const struct pst_op pst_op_prod_dim_int = {
    .schema = "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, "
              "ScalarType? dtype=None) -> Tensor",
    .infer = infer_prod_dim,
    .vjp = pst_vjp_formula,
    .formula = "self: prod_backward(cast(grad, dtype(self)), self, dim)",
};
PST_CPU_KERNELS(prod_dim_int, prod_dim_kernels);

/* grad_output has one element for each lane, in the order of lanes; its shape
 * does not matter. */
const struct pst_op pst_op_prod_backward = {
    .schema = "penstock::prod_backward(Tensor grad_output, Tensor self, "
              "int? dim=None) -> Tensor",
    .infer = pst_infer_same_as_1,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(prod_backward, prod_backward_kernels);
