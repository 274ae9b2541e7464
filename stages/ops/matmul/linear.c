// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/formula/formula.h"
#include "stages/ops/matmul/matmul.h"

/* --- linear: y (..., n) = x (..., k) w (n, k)^T + b (n) ----------------- */

static enum pst_status linear_infer(struct pst_infer *c)
{
    const struct pst_meta *t[2], *bias = pst_infer_in(c, 2);
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_matmul_operands(c, 0, 2, t);
    int64_t size[PST_MAX_RANK];

    if (status != PST_OK)
        return status;
    if (t[1]->rank != 2)
        return pst_infer_refuse(c, "the weight is %s, not a matrix",
                                pst_meta_text(t[1], b));
    if (t[0]->rank < 1 || t[0]->size[t[0]->rank - 1] != t[1]->size[1])
        return pst_infer_fail(c, "input %s does not fit weight %s",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b));
    for (unsigned d = 0; d < t[0]->rank; d++)
        size[d] = t[0]->size[d];
    size[t[0]->rank - 1] = t[1]->size[0];
    if (bias == NULL)
        return pst_infer_set(c, 0, t[0]->dtype, t[0]->rank, size);
    if (bias->rank > 1)
        return pst_infer_refuse(c, "the bias is %s, not a vector",
                                pst_meta_text(bias, b));
    return pst_matmul_set_added(c, 2, t[0]->dtype, t[0]->rank, size);
}

void pst_linear_describe(const struct pst_call *c, struct pst_product *p)
{
    const struct pst_meta *y = c->out[0].meta, *bias = c->in[2].meta;

    *p = (struct pst_product){.dtype = y->dtype,
                              .operand_dtype = c->in[1].meta->dtype,
                              .a.data = c->in[0].data,
                              .c.data = c->in[2].data,
                              .alpha = 1.0,
                              .beta = 1.0,
                              .out = c->out[0].data,
                              .accumulate = c->accumulate};
    if (c->in[2].data != NULL && bias->rank == 1 && bias->size[0] > 1)
        p->c.col = bias->stride[0];
    pst_product_rows(p, c->in[0].meta);
    pst_product_matrix(p, &c->in[1], PST_FORM_PACKED_T, y->size[y->rank - 1]);
}

/* dx = g w; dw = g^T x and db = column sums of g, as separate nodes. */
static enum pst_status linear_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, pst_matmul_emit(v, g, pst_vjp_in(v, 1)));
    if (pst_vjp_needs(v, 1)) {
        struct pst_value *x = pst_matmul_2d(v, pst_vjp_in(v, 0));
        struct pst_value *gt = pst_matmul_t(v, pst_matmul_2d(v, g));

        pst_vjp_set(v, 1, pst_matmul_emit(v, gt, x));
    }
    return pst_matmul_added_vjp(v, 2, 1.0);
}

static double linear_flops(const struct pst_node *node)
{
    return pst_matmul_flops(node, 0);
}

PST_PRODUCT_KERNELS(linear, pst_linear_describe, 0);

const struct pst_op pst_op_linear = {
    .schema = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> "
              "Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = linear_infer,
    .vjp = linear_vjp,
    .flops = linear_flops,
};
PST_CPU_KERNELS(linear, linear_kernels);

/* aten.linear with a weight of shape (k): the result lacks the last
 * dimension. */
PST_REWRITE_FORMULA(
    linear_vector,
    "penstock::linear_vector(Tensor input, Tensor weight, Tensor? bias=None) "
    "-> Tensor",
    "y = matmul(input, weight); is(bias) ? y + bias : y");

/* --- mm, addmm: beta c + alpha a (m, k) b (k, n) ------------------------ */

static enum pst_status mm_shape(const struct pst_infer *c, unsigned first,
                                int64_t size[2], enum pst_dtype *dtype)
{
    const struct pst_meta *t[2];
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_matmul_operands(c, first, 2, t);

    if (status != PST_OK)
        return status;
    if (t[0]->rank != 2 || t[1]->rank != 2 || t[0]->size[1] != t[1]->size[0])
        return pst_infer_fail(c, "%s and %s are not matrices that fit",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b));
    size[0] = t[0]->size[0];
    size[1] = t[1]->size[1];
    *dtype = t[0]->dtype;
    return PST_OK;
}

static enum pst_status mm_infer(struct pst_infer *c)
{
    int64_t size[2];
    enum pst_dtype dtype;
    enum pst_status status = mm_shape(c, 0, size, &dtype);

    return status != PST_OK ? status : pst_infer_set(c, 0, dtype, 2, size);
}

static enum pst_status addmm_infer(struct pst_infer *c)
{
    const struct pst_meta *self;
    int64_t size[2];
    enum pst_dtype dtype;
    enum pst_status status = mm_shape(c, 1, size, &dtype);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 0, &self);
    return status != PST_OK ? status
                            : pst_matmul_set_added(c, 0, dtype, 2, size);
}

static void mm_operands(const struct pst_call *c, unsigned first,
                        struct pst_product *p)
{
    const struct pst_operand *a = &c->in[first], *b = &c->in[first + 1];

    *p = (struct pst_product){
        .dtype = c->out[0].meta->dtype,
        .operand_dtype = a->meta->dtype,
        .m = a->meta->size[0],
        .k = a->meta->size[1],
        .a = {a->data, .row = a->meta->stride[0], .col = a->meta->stride[1]},
        .alpha = 1.0,
        .out = c->out[0].data,
        .accumulate = c->accumulate};
    pst_product_matrix(p, b, PST_FORM_PACKED, c->out[0].meta->size[1]);
}

void pst_mm_describe(const struct pst_call *c, struct pst_product *p)
{
    mm_operands(c, 0, p);
}

void pst_addmm_describe(const struct pst_call *c, struct pst_product *p)
{
    mm_operands(c, 1, p);
    pst_matmul_add(c, p);
}

PST_PRODUCT_KERNELS(mm, pst_mm_describe, 0);
PST_PRODUCT_KERNELS(addmm, pst_addmm_describe, 1);

const struct pst_op pst_op_mm = {
    .schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = mm_infer,
    .vjp = pst_mm_vjp,
    .flops = linear_flops,
};
PST_CPU_KERNELS(mm, mm_kernels);

const struct pst_op pst_op_addmm = {
    .schema = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar "
              "beta=1, Scalar alpha=1) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = addmm_infer,
    .vjp = pst_addmm_vjp,
    .flops = pst_addmm_flops,
};
PST_CPU_KERNELS(addmm, addmm_kernels);
