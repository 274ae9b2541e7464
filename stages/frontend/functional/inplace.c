// SPDX-License-Identifier: Apache-2.0
/* In-place operators: emits their functional variants on current values and
 * writes the result to the first operand. */
#include "stages/frontend/functional/functionalise.h"

#include "stages/frontend/functional/overlap.h"
#include "stages/frontend/functional/versions.h"
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>

/* True if the operator writes elements at indices that a tensor holds: an
 * operand that shares the storage may be overwritten before it is read. */
static bool writes_at_places(const struct pst_op *op)
{
    static const struct pst_op *const ops[] = {
        &pst_op_index_put,
        &pst_op_index_add,
        &pst_op_index_copy,
        &pst_op_index_reduce,
        &pst_op_index_fill_int_Tensor,
        &pst_op_index_fill_int_Scalar,
        &pst_op_put,
        &pst_op_scatter_src,
        &pst_op_scatter_value,
        &pst_op_scatter_add,
        &pst_op_scatter_value_reduce,
        &pst_op_scatter_reduce_name,
        &pst_op_scatter_reduce_two,
    };

    for (size_t i = 0; i < PST_COUNT(ops); i++)
        if (op == ops[i])
            return true;
    return false;
}

/* True if the operator fills its target with one number, the operand, which is
 * read before anything is written. */
static bool fills_target(const struct pst_op *op,
                         const struct pst_value *operand)
{
    return operand->meta.rank == 0 &&
           (op == &pst_op_fill_Tensor || op == &pst_op_masked_fill_Tensor ||
            op == &pst_op_index_fill_int_Tensor);
}

static enum pst_status refuse_operand(struct pst_functionalise *f,
                                      const struct pst_value *written,
                                      const struct pst_value *operand)
{
    char meta[PST_META_TEXT], why[PST_META_TEXT + 300];

    (void)snprintf(why, sizeof(why),
                   "it shares memory with an operand, %%%.200s, %s at %lld "
                   "(E_OVERLAP); clone that first",
                   operand->name, pst_meta_text(&operand->meta, meta),
                   (long long)operand->offset);
    return pst_versions_refuse(f, written, why);
}

/* Checks that an operand does not overlap the elements that are written. It may
 * be exactly those, unless the operator writes at chosen places; the number
 * that a fill writes may overlap. */
static bool check_operand(struct pst_functionalise *f,
                          const struct pst_write_target *t,
                          struct pst_value *operand)
{
    const struct pst_window to = {&t->value->meta, t->value->offset};
    struct pst_window from;
    bool overlaps = false;

    if (operand == NULL || t->storage == NULL)
        return true;
    operand = pst_versions_follow(f, operand);
    if (f->facts[pst_value_storage(operand)->id].storage != t->storage ||
        fills_target(t->op, operand))
        return true;
    from = (struct pst_window){&operand->meta, operand->offset};
    if (writes_at_places(t->op) || !pst_windows_same(&from, &to))
        f->build->status =
            pst_windows_overlap(&from, &to, &overlaps, f->build->diag);
    if (overlaps)
        f->build->status = refuse_operand(f, t->value, operand);
    return f->build->status == PST_OK;
}

/* Copies an argument, with the current versions of its values. The first
 * argument is the target of the write: it becomes the content that the write
 * replaces. */
static enum pst_status current_arg(struct pst_functionalise *f,
                                   const struct pst_write_target *t, bool first,
                                   const struct pst_arg *arg,
                                   struct pst_arg *ret)
{
    *ret = *arg;
    if (arg->kind == PST_ARG_VALUES)
        f->build->status =
            pst_arg_copy(&f->build->graph->arena, arg, ret, f->build->diag);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (f->build->status == PST_OK && arg->values[k] != NULL &&
            check_operand(f, t, arg->values[k]))
            ret->values[k] = pst_functionalise_read(f, arg->values[k]);
    if (arg->kind == PST_ARG_VALUE && first)
        ret->value = pst_versions_written(f, t);
    else if (arg->kind == PST_ARG_VALUE && check_operand(f, t, arg->value))
        ret->value = pst_functionalise_read(f, arg->value);
    return f->build->status;
}

/* Returns the arguments with the current values; NULL after an error. */
static struct pst_arg *current_args(struct pst_functionalise *f,
                                    const struct pst_write_target *t,
                                    const struct pst_arg *args, unsigned n_args)
{
    struct pst_arg *ret =
        pst_arena_calloc(&f->build->graph->arena, n_args, sizeof(*ret));

    if (ret == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, n_args);
        return NULL;
    }
    for (unsigned i = 0; i < n_args; i++)
        if (current_arg(f, t, i == 0, &args[i], &ret[i]) != PST_OK)
            return NULL;
    return ret;
}

static bool check_result(struct pst_functionalise *f,
                         const struct pst_write_target *t,
                         const struct pst_value *result)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (pst_meta_same_shape(&result->meta, &t->value->meta) &&
        pst_dtype_kind(result->meta.dtype) <=
            pst_dtype_kind(t->value->meta.dtype))
        return true;
    f->build->status =
        pst_diag_set(f->build->diag, PST_E_MODEL_IN_PLACE_RESULT,
                     "the result %s cannot be stored in place in %%%s, %s",
                     pst_meta_text(&result->meta, a), t->value->name,
                     pst_meta_text(&t->value->meta, b));
    return false;
}

/* True for operators that set all elements to one number. */
static bool is_fill(const struct pst_op *variant)
{
    return variant == &pst_op_fill_Scalar || variant == &pst_op_fill_Tensor ||
           variant == &pst_op_zero;
}

struct pst_value *pst_functionalise_inplace(struct pst_functionalise *f,
                                            const struct pst_op *variant,
                                            const struct pst_arg *args,
                                            unsigned n_args)
{
    struct pst_value *result, *current;
    struct pst_arg *now, from;
    struct pst_write_target t;

    if (!pst_versions_add_facts(f))
        return NULL;
    if (n_args == 0 || args[0].kind != PST_ARG_VALUE) {
        f->build->status =
            pst_diag_set(f->build->diag, PST_E_PT2_INCONSISTENT,
                         "an in-place operator has no tensor to write");
        return NULL;
    }
    /* t_() and the like change the sizes and strides of the tensor object, and
     * write no element. */
    if (variant->flags & PST_OP_VIEW) {
        t = (struct pst_write_target){
            .value = pst_versions_follow(f, args[0].value)};
        now = current_args(f, &t, args, n_args);
        result = now != NULL ? pst_emit(f->build, variant, now, n_args) : NULL;
        if (result == NULL || !pst_versions_add_facts(f))
            return NULL;
        return f->facts[t.value->id].renamed = result;
    }
    if (!pst_versions_prepare(f, args[0].value, is_fill(variant), &t))
        return NULL;
    t.op = variant;
    /* copy_ does not read the old content of its target. */
    if (variant == &pst_op_copy && n_args > 1 && args[1].kind == PST_ARG_VALUE)
        return current_arg(f, &t, false, &args[1], &from) == PST_OK
                   ? pst_functionalise_write(f, args[0].value, from.value)
                   : NULL;
    now = current_args(f, &t, args, n_args);
    if (now == NULL)
        return NULL;
    current = now[0].value;
    result = pst_emit(f->build, variant, now, n_args);
    if (result == NULL || !check_result(f, &t, result))
        return NULL;
    if (pst_value_storage(result) == pst_value_storage(current) &&
        pst_windows_same(&(struct pst_window){&result->meta, result->offset},
                         &(struct pst_window){&current->meta, current->offset}))
        return current; /* dropout_ in evaluation: no write */
    return pst_versions_commit(f, &t, result, result);
}
