// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/matmul.h"
#include "stages/ops/core/rows.h"

enum pst_status pst_matmul_operands(const struct pst_infer *c, unsigned first,
                                    unsigned n, const struct pst_meta **ret)
{
    for (unsigned i = 0; i < n; i++) {
        enum pst_status status = pst_infer_tensor(c, first + i, &ret[i]);

        if (status != PST_OK)
            return status;
        if (ret[i]->dtype == PST_BOOL)
            return pst_infer_refuse(c, "products of %s are not supported",
                                    pst_dtype_name(ret[i]->dtype));
        status = pst_infer_same_dtype(c, first, first + i);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

enum pst_status pst_matmul_set_added(struct pst_infer *c, unsigned added,
                                     enum pst_dtype dtype, unsigned rank,
                                     const int64_t *size)
{
    const struct pst_meta *x = pst_infer_in(c, added);
    struct pst_meta sum;
    enum pst_status status = pst_infer_set(c, 0, dtype, rank, size);
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (!pst_meta_broadcast(x, &c->out[0], &sum) ||
        !pst_meta_same_shape(&sum, &c->out[0]))
        return pst_infer_fail(c, "%s cannot be added to a product %s",
                              pst_meta_text(x, a),
                              pst_meta_text(&c->out[0], b));
    if (x->dtype != dtype)
        return pst_infer_fail(c, "%s is added to a product of %s",
                              pst_dtype_name(x->dtype), pst_dtype_name(dtype));
    return PST_OK;
}

/* Returns the stride of x along dimension d of out; the last dimensions of x
 * and out are aligned. */
static int64_t stride_in(const struct pst_meta *x, const struct pst_meta *out,
                         unsigned d)
{
    const int at = (int)d - (int)(out->rank - x->rank);

    return at < 0 || x->size[at] == 1 ? 0 : x->stride[at];
}

void pst_matmul_add(const struct pst_call *c, struct pst_product *p)
{
    const struct pst_operand *x = &c->in[0];
    const struct pst_meta *out = c->out[0].meta;

    p->beta = pst_pw_number(&c->args[3]);
    p->alpha = pst_pw_number(&c->args[4]);
    p->whole_beta = pst_pw_integer(&c->args[3]);
    p->whole_alpha = pst_pw_integer(&c->args[4]);
    p->c.data = x->data;
    for (unsigned d = 0; d + 2 < out->rank; d++)
        p->c.batch[d] = stride_in(x->meta, out, d);
    p->c.row = stride_in(x->meta, out, out->rank - 2);
    p->c.col = stride_in(x->meta, out, out->rank - 1);
}

double pst_matmul_flops(const struct pst_node *node, unsigned first)
{
    const struct pst_meta *a = &node->args[first].value->meta;
    const int64_t k = a->rank > 0 ? a->size[a->rank - 1] : 1;

    return 2.0 * (double)k * (double)pst_meta_numel(&node->outs[0]->meta);
}

struct pst_value *pst_matmul_emit(struct pst_vjp *v, struct pst_value *a,
                                  struct pst_value *b)
{
    if (a == NULL || b == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_matmul, PST_ARGS(pst_v(a), pst_v(b)));
}

struct pst_value *pst_matmul_t(struct pst_vjp *v, struct pst_value *a)
{
    return pst_vjp_transpose(v, a, -2, -1);
}

struct pst_value *pst_matmul_2d(struct pst_vjp *v, struct pst_value *a)
{
    int64_t size[2] = {1, 0};

    if (a == NULL)
        return NULL;
    size[1] = a->meta.size[a->meta.rank - 1];
    for (unsigned d = 0; d + 1 < a->meta.rank; d++)
        size[0] *= a->meta.size[d];
    return pst_vjp_reshape(v, a, 2, size);
}

enum pst_status pst_matmul_added_vjp(struct pst_vjp *v, unsigned added,
                                     double beta)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    const struct pst_value *x = pst_vjp_in(v, added);

    if (g == NULL || x == NULL || !pst_vjp_needs(v, added))
        return v->build.status;
    if (x->meta.rank == 1 && x->meta.size[0] == g->meta.size[g->meta.rank - 1])
        g = pst_vjp_emit(v, &pst_op_column_sum, PST_ARGS(pst_v(g), pst_i(1)));
    else
        g = pst_vjp_sum_to(v, g, &x->meta);
    if (g != NULL && beta != 1.0)
        g = pst_vjp_mul_scalar(v, g, beta);
    return pst_vjp_set(v, pst_vjp_flat(v, added), g);
}

enum pst_status pst_mm_vjp(struct pst_vjp *v)
{
    return pst_matmul_vjp(v, 0, 1.0);
}

enum pst_status pst_addmm_vjp(struct pst_vjp *v)
{
    pst_matmul_vjp(v, 1, pst_pw_number(&v->node->args[4]));
    return pst_matmul_added_vjp(v, 0, pst_pw_number(&v->node->args[3]));
}

double pst_addmm_flops(const struct pst_node *node)
{
    return pst_matmul_flops(node, 1);
}

/* Sets da = alpha g b^T and db = alpha a^T g for the matrices a and b, which
 * are arguments `first` and first + 1. */
enum pst_status pst_matmul_vjp(struct pst_vjp *v, unsigned first, double alpha)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    for (unsigned i = 0; g != NULL && i < 2; i++) {
        struct pst_value *other, *d;

        if (!pst_vjp_needs(v, first + i))
            continue;
        other = pst_matmul_t(v, pst_vjp_in(v, first + !i));
        d = i == 0 ? pst_matmul_emit(v, g, other)
                   : pst_matmul_emit(v, other, g);
        if (d != NULL && alpha != 1.0)
            d = pst_vjp_mul_scalar(v, d, alpha);
        pst_vjp_set(v, pst_vjp_flat(v, first + i), d);
    }
    return v->build.status;
}
