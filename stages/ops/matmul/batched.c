// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/matmul.h"
#include "stages/ops/matmul/tiles.h"

/* --- bmm, baddbmm: (b, m, k) (b, k, n) ---------------------------------- */

static enum pst_status bmm_shape(const struct pst_infer *c, unsigned first,
                                 int64_t size[3], enum pst_dtype *dtype)
{
    const struct pst_meta *t[2];
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_matmul_operands(c, first, 2, t);

    if (status != PST_OK)
        return status;
    if (t[0]->rank != 3 || t[1]->rank != 3 || t[0]->size[0] != t[1]->size[0] ||
        t[0]->size[2] != t[1]->size[1])
        return pst_infer_fail(c, "%s and %s are not batches that fit",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b));
    size[0] = t[0]->size[0];
    size[1] = t[0]->size[1];
    size[2] = t[1]->size[2];
    *dtype = t[0]->dtype;
    return PST_OK;
}

static enum pst_status bmm_infer(struct pst_infer *c)
{
    int64_t size[3];
    enum pst_dtype dtype;
    enum pst_status status = bmm_shape(c, 0, size, &dtype);

    return status != PST_OK ? status : pst_infer_set(c, 0, dtype, 3, size);
}

static enum pst_status baddbmm_infer(struct pst_infer *c)
{
    const struct pst_meta *self;
    int64_t size[3];
    enum pst_dtype dtype;
    enum pst_status status = bmm_shape(c, 1, size, &dtype);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 0, &self);
    return status != PST_OK ? status
                            : pst_matmul_set_added(c, 0, dtype, 3, size);
}

static struct pst_product_operand operand_of(const struct pst_operand *x)
{
    const unsigned rank = x->meta->rank;

    return (struct pst_product_operand){.data = x->data,
                                        .row = x->meta->stride[rank - 2],
                                        .col = x->meta->stride[rank - 1]};
}

static void bmm_operands(const struct pst_call *c, unsigned first,
                         struct pst_product *p)
{
    const struct pst_operand *a = &c->in[first], *b = &c->in[first + 1];

    *p = (struct pst_product){.dtype = c->out[0].meta->dtype,
                              .operand_dtype = a->meta->dtype,
                              .n_batch = 1,
                              .batch = {a->meta->size[0]},
                              .m = a->meta->size[1],
                              .k = a->meta->size[2],
                              .n = b->meta->size[2],
                              .a = operand_of(a),
                              .b = operand_of(b),
                              .alpha = 1.0,
                              .out = c->out[0].data,
                              .accumulate = c->accumulate};
    p->a.batch[0] = a->meta->stride[0];
    p->b.batch[0] = b->meta->stride[0];
}

void pst_bmm_describe(const struct pst_call *c, struct pst_product *p)
{
    bmm_operands(c, 0, p);
}

void pst_baddbmm_describe(const struct pst_call *c, struct pst_product *p)
{
    bmm_operands(c, 1, p);
    pst_matmul_add(c, p);
}

static double first_flops(const struct pst_node *node)
{
    return pst_matmul_flops(node, 0);
}

PST_PRODUCT_KERNELS(bmm, pst_bmm_describe, 0);
PST_PRODUCT_KERNELS(baddbmm, pst_baddbmm_describe, 1);

const struct pst_op pst_op_bmm = {
    .schema = "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = bmm_infer,
    .vjp = pst_mm_vjp,
    .flops = first_flops,
};
PST_CPU_KERNELS(bmm, bmm_kernels);

const struct pst_op pst_op_baddbmm = {
    .schema = "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, "
              "Scalar beta=1, Scalar alpha=1) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = baddbmm_infer,
    .vjp = pst_addmm_vjp,
    .flops = pst_addmm_flops,
};
PST_CPU_KERNELS(baddbmm, baddbmm_kernels);

/* --- matmul, mv, dot ---------------------------------------------------- */

/* Infers the shape of the result. A vector is a row as left operand and a
 * column as right operand, and the result lacks that dimension. The dimensions
 * before the last two broadcast. */
static enum pst_status matmul_shape(const struct pst_infer *c,
                                    const struct pst_meta *a,
                                    const struct pst_meta *b,
                                    struct pst_meta *ret)
{
    struct pst_meta ba = *a, bb = *b;
    const unsigned ra = PST_MIN(a->rank, 2u), rb = PST_MIN(b->rank, 2u);
    char ta[PST_META_TEXT], tb[PST_META_TEXT];

    if (ra == 0 || rb == 0 || a->size[a->rank - 1] != b->size[b->rank - rb])
        return pst_infer_fail(c, "%s and %s do not fit", pst_meta_text(a, ta),
                              pst_meta_text(b, tb));
    ba.rank -= ra;
    bb.rank -= rb;
    if (!pst_meta_broadcast(&ba, &bb, ret))
        return pst_infer_fail(c, "the batches of %s and %s do not fit",
                              pst_meta_text(a, ta), pst_meta_text(b, tb));
    if (ra == 2)
        ret->size[ret->rank++] = a->size[a->rank - 2];
    if (rb == 2)
        ret->size[ret->rank++] = b->size[b->rank - 1];
    return PST_OK;
}

static enum pst_status matmul_infer(struct pst_infer *c)
{
    const struct pst_meta *t[2];
    struct pst_meta out = {0};
    enum pst_status status = pst_matmul_operands(c, 0, 2, t);

    if (status == PST_OK)
        status = matmul_shape(c, t[0], t[1], &out);
    if (status != PST_OK)
        return status;
    return pst_infer_set(c, 0, t[0]->dtype, out.rank, out.size);
}

/* Infers mv and dot: a must have ra dimensions, b must have one. */
static enum pst_status ranked_infer(struct pst_infer *c, unsigned ra)
{
    const struct pst_meta *a = pst_infer_in(c, 0), *b = pst_infer_in(c, 1);
    char ta[PST_META_TEXT], tb[PST_META_TEXT];

    if (a != NULL && b != NULL && (a->rank != ra || b->rank != 1))
        return pst_infer_fail(c, "%s and %s do not fit", pst_meta_text(a, ta),
                              pst_meta_text(b, tb));
    return matmul_infer(c);
}

static enum pst_status mv_infer(struct pst_infer *c)
{
    return ranked_infer(c, 2);
}

static enum pst_status dot_infer(struct pst_infer *c)
{
    return ranked_infer(c, 1);
}

/* Writes the strides of x in the n_batch batch dimensions, which align at the
 * right; 0 where x broadcasts. */
static void batch_strides(const struct pst_meta *x, unsigned n_batch,
                          int64_t *ret)
{
    const unsigned own = x->rank > 2 ? x->rank - 2 : 0;

    for (unsigned d = 0; d < n_batch; d++) {
        const int at = (int)d - (int)(n_batch - own);

        ret[d] = at < 0 || x->size[at] == 1 ? 0 : x->stride[at];
    }
}

void pst_matmul_describe(const struct pst_call *c, struct pst_product *p)
{
    const struct pst_meta *a = c->in[0].meta, *b = c->in[1].meta;
    const struct pst_meta *y = c->out[0].meta;
    const unsigned ra = PST_MIN(a->rank, 2u), rb = PST_MIN(b->rank, 2u);
    const int64_t n = y->rank > 0 ? y->size[y->rank - 1] : 1;
    const bool tiled = pst_tiles_is(b, a->size[a->rank - 1], n);

    *p =
        (struct pst_product){.dtype = c->out[0].meta->dtype,
                             .operand_dtype = a->dtype,
                             .n = rb == 2 ? b->size[b->rank - 1] : 1,
                             .a.data = c->in[0].data,
                             .b = {.data = c->in[1].data,
                                   .row = b->stride[b->rank - rb],
                                   .col = rb == 2 ? b->stride[b->rank - 1] : 1},
                             .alpha = 1.0,
                             .out = c->out[0].data,
                             .accumulate = c->accumulate};
    if (b->rank <= 2 || tiled)
        pst_product_rows(p, a);
    if (b->rank == 2 || tiled)
        pst_product_matrix(p, &c->in[1], PST_FORM_PACKED, n);
    if (b->rank <= 2 || tiled)
        return;
    p->k = a->size[a->rank - 1];
    p->m = ra == 2 ? a->size[a->rank - 2] : 1;
    p->a.col = a->stride[a->rank - 1];
    p->a.row = ra == 2 ? a->stride[a->rank - 2] : 0;
    /* b has at least 3 dimensions, so all dimensions of out but m and n belong
     * to the batch. */
    p->n_batch = c->out[0].meta->rank - (ra == 2 ? 2 : 1);
    for (unsigned d = 0; d < p->n_batch; d++)
        p->batch[d] = c->out[0].meta->size[d];
    batch_strides(a, p->n_batch, p->a.batch);
    batch_strides(b, p->n_batch, p->b.batch);
}

/* Turns g, a and b into matrices first: vectors get their missing dimension. */
static enum pst_status matmul_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *a = pst_vjp_in(v, 0);
    struct pst_value *b = pst_vjp_in(v, 1), *d;
    const unsigned ra = a->meta.rank, rb = b->meta.rank;

    if (g == NULL)
        return v->build.status;
    if (rb == 1) {
        b = pst_vjp_unsqueeze(v, b, 1);
        g = pst_vjp_unsqueeze(v, g, -1);
    }
    if (ra == 1) {
        a = pst_vjp_unsqueeze(v, a, 0);
        g = g == NULL ? NULL : pst_vjp_unsqueeze(v, g, -2);
    }
    if (a == NULL || b == NULL || g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0)) {
        d = pst_matmul_emit(v, g, pst_matmul_t(v, b));
        d = pst_vjp_sum_to(v, d, &a->meta);
        d = pst_vjp_reshape_as(v, d, &pst_vjp_in(v, 0)->meta);
        pst_vjp_set(v, 0, d);
    }
    if (pst_vjp_needs(v, 1)) {
        if (b->meta.rank == 2) { /* one matmul over all rows of a */
            a = pst_matmul_2d(v, a);
            g = pst_matmul_2d(v, g);
        }
        d = pst_matmul_emit(v, pst_matmul_t(v, a), g);
        d = d == NULL ? NULL : pst_vjp_sum_to(v, d, &b->meta);
        d = pst_vjp_reshape_as(v, d, &pst_vjp_in(v, 1)->meta);
        pst_vjp_set(v, 1, d);
    }
    return v->build.status;
}

PST_PRODUCT_KERNELS(matmul, pst_matmul_describe, 0);
PST_PRODUCT_KERNELS(mv, pst_matmul_describe, 0);
PST_PRODUCT_KERNELS(dot, pst_matmul_describe, 0);

const struct pst_op pst_op_matmul = {
    .schema = "aten::matmul(Tensor self, Tensor other) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = matmul_infer,
    .vjp = matmul_vjp,
    .flops = first_flops,
};
PST_CPU_KERNELS(matmul, matmul_kernels);

const struct pst_op pst_op_mv = {
    .schema = "aten::mv(Tensor self, Tensor vec) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = mv_infer,
    .vjp = matmul_vjp,
    .flops = first_flops,
};
PST_CPU_KERNELS(mv, mv_kernels);

const struct pst_op pst_op_dot = {
    .schema = "aten::dot(Tensor self, Tensor tensor) -> Tensor",
    .flags = PST_OP_PRODUCT,
    .infer = dot_infer,
    .vjp = matmul_vjp,
    .flops = first_flops,
};
PST_CPU_KERNELS(dot, dot_kernels);
