// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/heads_read.h"

#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"

#include <math.h>
#include <string.h>

/* --- operands of a loss --------------------------------------------------- */

static const struct pst_arg *arg_of(const struct pst_node *node,
                                    const char *name)
{
    const int i = pst_schema_arg(node->schema, name);

    return i < 0 ? NULL : &node->args[i];
}

bool pst_head_is_over_last(const struct pst_node *node)
{
    const struct pst_value *in = node->args[0].value;
    const enum pst_dtype from = in->meta.dtype, to = node->outs[0]->meta.dtype;
    const int64_t rank = in->meta.rank, dim = node->args[1].i;

    return (from == to || (pst_head_is_low(from) && to == PST_F32)) &&
           (dim == -1 || dim == rank - 1);
}

static bool is_log_softmax(const struct pst_node *node)
{
    return node != NULL && (node->op == &pst_op_log_softmax_int ||
                            node->op == &pst_op__log_softmax);
}

/* If the node is a cross entropy, sets *ret to its operands and options; else
 * returns false. */
bool pst_head_read_loss(const struct pst_node *node, struct pst_head_loss *ret)
{
    struct pst_value *self = node->args[0].value;

    *ret = (struct pst_head_loss){
        .logits = self, .smoothing = {.kind = PST_ARG_FLOAT}, .reader = node};
    if (node->op == &pst_op_cross_entropy_loss) {
        ret->smoothing = *arg_of(node, "label_smoothing");
    } else if (node->op == &pst_op_nll_loss ||
               node->op == &pst_op_nll_loss_nd ||
               node->op == &pst_op_nll_loss_forward) {
        if (!is_log_softmax(self->def))
            return false;
        ret->reader = self->def;
        ret->logits = self->def->args[0].value;
    } else {
        return false;
    }
    ret->has_weights = arg_of(node, "weight")->kind != PST_ARG_NONE;
    ret->target = *arg_of(node, "target");
    ret->reduction = *arg_of(node, "reduction");
    ret->ignore = *arg_of(node, "ignore_index");
    return true;
}

/* --- operands of a z-loss ------------------------------------------------- */

static bool is_int(const struct pst_value *value)
{
    return pst_dtype_kind(value->meta.dtype) != PST_KIND_FLOAT;
}

/* True for a mask of the same shape through which no gradient goes: integers,
 * or numbers converted from such. */
static bool is_mask(const struct pst_value *mask, const struct pst_meta *like)
{
    const struct pst_node *node = mask->def;
    const bool converted =
        node != NULL &&
        (node->op == &pst_op_to_dtype || node->op == &pst_op__to_copy) &&
        is_int(node->args[0].value);

    return (is_int(mask) || converted) && mask->meta.rank == like->rank &&
           memcmp(mask->meta.size, like->size,
                  like->rank * sizeof(like->size[0])) == 0;
}

/* If the value is a square, by pow or as a product with itself, returns the
 * value that is squared; else NULL. */
static struct pst_value *find_root(const struct pst_value *value)
{
    const struct pst_node *node = value->def;
    const struct pst_arg *a;

    if (node == NULL)
        return NULL;
    a = node->args;
    if (node->op == &pst_op_mul_Tensor && a[0].value == a[1].value)
        return a[0].value;
    if (node->op == &pst_op_pow_Tensor_Scalar &&
        ((a[1].kind == PST_ARG_INT && a[1].i == 2) ||
         (a[1].kind == PST_ARG_FLOAT && a[1].f == 2.0)))
        return a[0].value;
    return NULL;
}

/* True for logsumexp over the last dimension. */
static bool is_log_sum(const struct pst_node *node)
{
    int64_t dim;

    if (node == NULL || node->op != &pst_op_logsumexp || node->no_grad ||
        node->args[1].n != 1 || (node->schema->n_args > 2 && node->args[2].b))
        return false;
    dim = node->args[1].ints[0];
    return dim == -1 || dim == (int64_t)node->args[0].value->meta.rank - 1;
}

/* If the node is the sum or mean of a z-loss and nothing else reads the
 * intermediate values, sets *ret; else returns false. */
bool pst_head_read_z(const struct pst_node *node, const unsigned *uses,
                     const bool *read, struct pst_head_z *ret)
{
    const struct pst_value *value, *root, *at[3];
    unsigned n = 0;

    *ret = (struct pst_head_z){0};
    if ((node->op != &pst_op_mean && node->op != &pst_op_sum) ||
        node->no_grad || node->args[0].value->meta.dtype != PST_F32 ||
        node->outs[0]->meta.dtype != PST_F32)
        return false;
    ret->reduction = node->op == &pst_op_mean ? PST_HEAD_MEAN : PST_HEAD_SUM;
    value = node->args[0].value;
    at[n++] = value;
    if (find_root(value) == NULL && value->def != NULL &&
        value->def->op == &pst_op_mul_Tensor) {
        const struct pst_arg *a = value->def->args;
        const unsigned mask = is_mask(a[1].value, &value->meta) ? 1 : 0;

        ret->mask = a[mask].value;
        value = a[1 - mask].value;
        if (!is_mask(ret->mask, &value->meta))
            return false;
        at[n++] = value;
    }
    root = find_root(value);
    if (root == NULL || !is_log_sum(root->def))
        return false;
    at[n++] = root;
    ret->log_sum = root->def;
    if (uses == NULL)
        return true;
    for (unsigned i = 0; i < n; i++) {
        const bool twice = i + 1 == n && value->def->op == &pst_op_mul_Tensor;

        if (at[i]->def->no_grad || uses[at[i]->id] != (twice ? 2 : 1) ||
            (read != NULL && read[at[i]->id]))
            return false;
    }
    return true;
}

/* --- casts ---------------------------------------------------------------- */

bool pst_head_is_low(enum pst_dtype dtype)
{
    return dtype == PST_BF16 || dtype == PST_F16;
}

bool pst_head_is_cast(const struct pst_node *node, enum pst_dtype from,
                      enum pst_dtype to)
{
    return node != NULL && !node->no_grad &&
           (node->op == &pst_op_to_dtype || node->op == &pst_op__to_copy) &&
           node->args[0].value->meta.dtype == from &&
           node->outs[0]->meta.dtype == to;
}

bool pst_head_is_upcast(const struct pst_node *node)
{
    return pst_head_is_cast(node, PST_BF16, PST_F32) ||
           pst_head_is_cast(node, PST_F16, PST_F32);
}

/* Returns the f32 value that is cast to `dtype`, or the value itself if `dtype`
 * is f32; NULL: the value is no such cast. */
static struct pst_value *find_f32(struct pst_value *value, enum pst_dtype dtype)
{
    if (value == NULL || dtype == PST_F32)
        return value;
    return pst_head_is_cast(value->def, PST_F32, dtype)
               ? value->def->args[0].value
               : NULL;
}

/* --- views, factors, the linear layer --------------------------------------
 */

/* True if the result has the elements of the operand, in the same order. */
bool pst_head_is_view(const struct pst_node *node)
{
    static const struct pst_op *const views[] = {
        &pst_op_view,         &pst_op_reshape,
        &pst_op__unsafe_view, &pst_op_flatten_using_ints,
        &pst_op_unsqueeze,    &pst_op_unflatten_int,
        &pst_op_squeeze_dim,  &pst_op_squeeze_dims,
        &pst_op_squeeze,      &pst_op_contiguous,
        &pst_op_clone,        &pst_op_alias};

    for (size_t i = 0; i < PST_COUNT(views); i++)
        if (node->op == views[i])
            return true;
    return false;
}

int64_t pst_head_last_size(const struct pst_value *value)
{
    const struct pst_meta *meta = &value->meta;

    return meta->rank > 0 ? meta->size[meta->rank - 1] : 1;
}

/* Returns the factor of a multiplication or division by a number; 0: it is
 * another node. */
double pst_head_factor(const struct pst_node *node)
{
    double by;

    if (node->op != &pst_op_mul_Scalar && node->op != &pst_op_div_Scalar)
        return 0.0;
    if (node->args[1].kind == PST_ARG_FLOAT)
        by = node->args[1].f;
    else if (node->args[1].kind == PST_ARG_INT)
        by = (double)node->args[1].i;
    else
        return 0.0;
    if (node->op == &pst_op_div_Scalar)
        by = by != 0.0 ? 1.0 / by : 0.0;
    return isfinite(by) ? by : 0.0;
}

/* If the value is the transpose of a whole matrix, by a single view that passes
 * gradients, returns the matrix; else NULL. */
static struct pst_value *find_transposed(const struct pst_value *value)
{
    const struct pst_meta *t = &value->meta;
    struct pst_value *of = value->base;

    return of != NULL && value->def != NULL && !value->def->no_grad &&
                   value->def->args[0].kind == PST_ARG_VALUE &&
                   value->def->args[0].value == of && value->offset == 0 &&
                   t->rank == 2 && of->meta.rank == 2 &&
                   of->meta.dtype == t->dtype &&
                   pst_meta_is_contiguous(&of->meta) &&
                   t->size[0] == of->meta.size[1] &&
                   t->size[1] == of->meta.size[0] && t->stride[0] == 1 &&
                   t->stride[1] == t->size[0]
               ? of
               : NULL;
}

/* If the value is the transpose of an f32 weight, cast to `dtype` before or
 * after transposing, returns the weight; else NULL. */
static struct pst_value *find_weight(struct pst_value *value,
                                     enum pst_dtype dtype)
{
    struct pst_value *cast = find_f32(value, dtype);

    return cast != NULL ? find_transposed(cast)
                        : find_f32(find_transposed(value), dtype);
}

static bool is_one(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_FLOAT ? arg->f == 1.0
                                      : arg->kind == PST_ARG_INT && arg->i == 1;
}

/* If the node is a linear layer, or a matmul with a transposed weight, into
 * which some exports decompose it, sets *ret to the operands; else returns
 * false. */
bool pst_head_read_layer(const struct pst_node *node,
                         struct pst_head_layer *ret)
{
    const struct pst_arg *a = node->args;
    const enum pst_dtype dtype = node->outs[0]->meta.dtype;
    struct pst_value *bias = NULL;

    *ret = (struct pst_head_layer){.dtype = dtype};
    if (dtype != PST_F32 && !pst_head_is_low(dtype))
        return false;
    if (node->op == &pst_op_linear) {
        ret->x = a[0].value;
        ret->weight = find_f32(a[1].value, dtype);
        bias = a[2].kind == PST_ARG_VALUE ? a[2].value : NULL;
    } else if (node->op == &pst_op_mm || node->op == &pst_op_matmul) {
        ret->x = a[0].value;
        ret->weight = find_weight(a[1].value, dtype);
    } else if (node->op == &pst_op_addmm && is_one(&a[3]) && is_one(&a[4])) {
        ret->x = a[1].value;
        ret->weight = find_weight(a[2].value, dtype);
        bias = a[0].value;
    }
    ret->bias = find_f32(bias, dtype);
    return (bias == NULL || ret->bias != NULL) && ret->weight != NULL &&
           ret->weight->meta.dtype == PST_F32 && ret->weight->meta.rank == 2 &&
           (ret->bias == NULL ||
            (ret->bias->meta.rank == 1 &&
             ret->bias->meta.size[0] == ret->weight->meta.size[0]));
}

struct reader {
    const bool *values;
    bool found;
};

static void look_for_value(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct reader *r = ctx;

    (void)arg;
    r->found = r->found || r->values[(*slot)->id];
}

/* True if the node reads one of the values, which are marked by id. */
bool pst_head_reads_any(struct pst_node *node, const bool *values)
{
    struct reader r = {values, false};

    pst_node_uses(node, look_for_value, &r);
    return r.found;
}
