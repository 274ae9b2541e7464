// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/vjp.h"

#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"

enum pst_status pst_vjp_none(struct pst_vjp *v)
{
    return v->build.status;
}

unsigned pst_vjp_flat(const struct pst_vjp *v, unsigned arg)
{
    const struct pst_schema *schema = v->node->schema;
    unsigned flat = 0;

    for (unsigned i = 0; i < arg; i++)
        flat += pst_call_count_arg(schema, i, &v->node->args[i]);
    return flat;
}

bool pst_vjp_needs(const struct pst_vjp *v, unsigned arg)
{
    return v->needs[pst_vjp_flat(v, arg)];
}

/* Returns the tensor at a flat index; NULL if it is absent. */
static const struct pst_value *value_at(const struct pst_vjp *v, unsigned flat)
{
    const struct pst_schema *schema = v->node->schema;

    for (unsigned i = 0; i < schema->n_args; i++) {
        const struct pst_arg *arg = &v->node->args[i];
        const unsigned n = pst_call_count_arg(schema, i, arg);

        if (flat < n && arg->kind == PST_ARG_VALUE)
            return arg->value;
        if (flat < n && arg->kind == PST_ARG_VALUES)
            return arg->values[flat];
        if (flat < n)
            return NULL;
        flat -= n;
    }
    return NULL;
}

enum pst_status pst_vjp_set(struct pst_vjp *v, unsigned flat,
                            struct pst_value *grad)
{
    const struct pst_value *of = value_at(v, flat);
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (v->build.status != PST_OK || grad == NULL || !v->needs[flat])
        return v->build.status;
    if (of == NULL || !pst_meta_same(&grad->meta, &of->meta)) {
        v->build.status = pst_diag_set(
            v->build.diag, PST_E_INTERNAL_BUG,
            "gradient of %s for \"%s\" is %s, not %s", pst_node_origin(v->node),
            of == NULL ? "None" : of->name, pst_meta_text(&grad->meta, a),
            of == NULL ? "absent" : pst_meta_text(&of->meta, b));
        return v->build.status;
    }
    v->ret[flat] = grad;
    return PST_OK;
}

/* --- emitters ----------------------------------------------------------- */

struct pst_value *pst_vjp_emit(struct pst_vjp *v, const struct pst_op *op,
                               const struct pst_arg *args, unsigned n_args)
{
    return pst_emit(&v->build, op, args, n_args);
}

static struct pst_value *emit_binary(struct pst_vjp *v, const struct pst_op *op,
                                     struct pst_value *a, struct pst_value *b)
{
    if (a == NULL || b == NULL)
        return NULL;
    return pst_vjp_emit(v, op, PST_ARGS(pst_v(a), pst_v(b)));
}

static struct pst_value *emit_with_number(struct pst_vjp *v,
                                          const struct pst_op *op,
                                          struct pst_value *a, double b)
{
    if (a == NULL)
        return NULL;
    return pst_vjp_emit(v, op, PST_ARGS(pst_v(a), pst_f(b)));
}

struct pst_value *pst_vjp_add(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b)
{
    return emit_binary(v, &pst_op_add_Tensor, a, b);
}

struct pst_value *pst_vjp_sub(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b)
{
    return emit_binary(v, &pst_op_sub_Tensor, a, b);
}

struct pst_value *pst_vjp_mul(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b)
{
    return emit_binary(v, &pst_op_mul_Tensor, a, b);
}

struct pst_value *pst_vjp_div(struct pst_vjp *v, struct pst_value *a,
                              struct pst_value *b)
{
    return emit_binary(v, &pst_op_div_Tensor, a, b);
}

struct pst_value *pst_vjp_mul_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b)
{
    return emit_with_number(v, &pst_op_mul_Scalar, a, b);
}

struct pst_value *pst_vjp_add_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b)
{
    return emit_with_number(v, &pst_op_add_Scalar, a, b);
}

struct pst_value *pst_vjp_div_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b)
{
    return emit_with_number(v, &pst_op_div_Scalar, a, b);
}

struct pst_value *pst_vjp_pow_scalar(struct pst_vjp *v, struct pst_value *a,
                                     double b)
{
    return emit_with_number(v, &pst_op_pow_Tensor_Scalar, a, b);
}

struct pst_value *pst_vjp_neg(struct pst_vjp *v, struct pst_value *a)
{
    return a == NULL ? NULL : pst_vjp_emit(v, &pst_op_neg, PST_ARGS(pst_v(a)));
}

struct pst_value *pst_vjp_cast(struct pst_vjp *v, struct pst_value *a,
                               enum pst_dtype dtype)
{
    if (a == NULL || a->meta.dtype == dtype)
        return a;
    return pst_vjp_emit(v, &pst_op__to_copy,
                        PST_ARGS(pst_v(a), pst_dtype_arg(dtype)));
}

struct pst_value *pst_vjp_where(struct pst_vjp *v, struct pst_value *cond,
                                struct pst_value *a, struct pst_value *b)
{
    struct pst_meta zero = {0};

    if (cond == NULL || (a == NULL && b == NULL))
        return NULL;
    zero.dtype = (a != NULL ? a : b)->meta.dtype;
    if (a == NULL)
        a = pst_vjp_full(v, &zero, 0.0);
    if (b == NULL)
        b = pst_vjp_full(v, &zero, 0.0);
    return pst_vjp_emit(v, &pst_op_where_self,
                        PST_ARGS(pst_v(cond), pst_v(a), pst_v(b)));
}

struct pst_value *pst_vjp_full(struct pst_vjp *v, const struct pst_meta *meta,
                               double value)
{
    return pst_vjp_emit(v, &pst_op_full,
                        PST_ARGS(pst_ints(meta->size, meta->rank), pst_f(value),
                                 pst_dtype_arg(meta->dtype)));
}

struct pst_value *pst_vjp_zeros_like(struct pst_vjp *v,
                                     const struct pst_value *like)
{
    return like == NULL ? NULL : pst_vjp_full(v, &like->meta, 0.0);
}

/* --- shapes ------------------------------------------------------------- */

struct pst_value *pst_vjp_reshape(struct pst_vjp *v, struct pst_value *a,
                                  unsigned rank, const int64_t *sizes)
{
    struct pst_meta meta;

    if (a == NULL)
        return NULL;
    meta = pst_meta_make(a->meta.dtype, rank, sizes);
    if (pst_meta_same_shape(&meta, &a->meta))
        return a;
    return pst_vjp_emit(v, &pst_op_reshape,
                        PST_ARGS(pst_v(a), pst_ints(sizes, rank)));
}

struct pst_value *pst_vjp_reshape_as(struct pst_vjp *v, struct pst_value *a,
                                     const struct pst_meta *like)
{
    return pst_vjp_reshape(v, a, like->rank, like->size);
}

struct pst_value *pst_vjp_expand_as(struct pst_vjp *v, struct pst_value *a,
                                    const struct pst_meta *like)
{
    if (a == NULL || pst_meta_same_shape(&a->meta, like))
        return a;
    return pst_vjp_emit(v, &pst_op_expand,
                        PST_ARGS(pst_v(a), pst_ints(like->size, like->rank)));
}

struct pst_value *pst_vjp_unsqueeze(struct pst_vjp *v, struct pst_value *a,
                                    int64_t dim)
{
    if (a == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_unsqueeze, PST_ARGS(pst_v(a), pst_i(dim)));
}

struct pst_value *pst_vjp_transpose(struct pst_vjp *v, struct pst_value *a,
                                    int64_t dim0, int64_t dim1)
{
    if (a == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_transpose_int,
                        PST_ARGS(pst_v(a), pst_i(dim0), pst_i(dim1)));
}

struct pst_value *pst_vjp_permute(struct pst_vjp *v, struct pst_value *a,
                                  const int64_t *dims, unsigned n)
{
    if (a == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_permute,
                        PST_ARGS(pst_v(a), pst_ints(dims, n)));
}

struct pst_value *pst_vjp_sum_dims(struct pst_vjp *v, struct pst_value *a,
                                   const int64_t *dims, unsigned n,
                                   bool keepdim)
{
    if (a == NULL || n == 0) /* an empty list would mean all dimensions */
        return a;
    return pst_vjp_emit(v, &pst_op_sum_dim_IntList,
                        PST_ARGS(pst_v(a), pst_ints(dims, n), pst_b(keepdim)));
}

struct pst_value *pst_vjp_sum_to(struct pst_vjp *v, struct pst_value *g,
                                 const struct pst_meta *like)
{
    int64_t dims[PST_MAX_RANK];
    unsigned n = 0, lead;

    if (g == NULL)
        return NULL;
    lead = g->meta.rank - PST_MIN(g->meta.rank, like->rank);
    for (unsigned d = 0; d < lead; d++)
        dims[n++] = d;
    for (unsigned d = lead; d < g->meta.rank; d++)
        if (like->size[d - lead] == 1 && g->meta.size[d] != 1)
            dims[n++] = d;
    /* Broadcast dimensions of size 1 are kept, added ones are removed. */
    g = pst_vjp_sum_dims(v, g, dims, n, n > lead);
    g = g == NULL ? NULL : pst_vjp_reshape_as(v, g, like);
    return pst_vjp_cast(v, g, like->dtype);
}

struct pst_value *pst_vjp_unreduce(struct pst_vjp *v, struct pst_value *g,
                                   const struct pst_meta *like,
                                   const bool reduced[PST_MAX_RANK],
                                   bool keepdim)
{
    int64_t size[PST_MAX_RANK];

    for (unsigned d = 0; d < like->rank; d++)
        size[d] = reduced[d] ? 1 : like->size[d];
    if (!keepdim)
        g = pst_vjp_reshape(v, g, like->rank, size);
    return pst_vjp_expand_as(v, g, like);
}
