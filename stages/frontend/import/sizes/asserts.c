// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers read from data (item), and assertions on numbers. Assertions on sizes
 * are checked here and limit their ranges. Numbers read from data become
 * tensors of one element again, so that assertions on them and arithmetic with
 * them run in each step; nothing else may depend on such a number.
 */
#include "stages/frontend/import/nodes.h"
#include "stages/frontend/import/regions/regions.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define MAX_DEPTH 64 /* maximum operations from a read to an assertion */

enum pst_status pst_import_note_number(struct pst_import *import,
                                       struct pst_scope *scope,
                                       const struct pst_doc_node *node)
{
    const struct pst_doc_arg *tensor =
        pst_doc_arg(node, "self", PST_DOC_TENSOR);
    const char *name =
        node->n_outputs > 0 ? pst_doc_number_name(&node->outputs[0]) : NULL;
    struct pst_value *v =
        tensor != NULL ? pst_import_find(scope, tensor->name) : NULL;

    if (name == NULL)
        return PST_OK;
    /* The number is read from the current content; later writes do not change
     * it. */
    if (v != NULL)
        v = pst_functionalise_read(import->functional, v);
    if (tensor != NULL && v == NULL)
        return import->build.status != PST_OK
                   ? import->build.status
                   : pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                                  "\"%s\" is read from no tensor", name);
    if (v != NULL ? pst_map_put(&scope->read, name, v)
                  : pst_map_put(&scope->numbers, name, (void *)node))
        return PST_OK;
    return pst_diag_nomem(import->diag, strlen(name));
}

/* Returns the argument with that name, of any kind. */
static const struct pst_doc_arg *find_arg(const struct pst_doc_node *node,
                                          const char *name)
{
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (strcmp(node->inputs[i].name, name) == 0)
            return &node->inputs[i].arg;
    return NULL;
}

/* Returns the dtype of the node's first result in the file; bool if it is not a
 * tensor. */
static enum pst_dtype result_dtype(const struct pst_doc_graph *graph,
                                   const struct pst_doc_node *node)
{
    const struct pst_doc_tensor *t =
        node->n_outputs > 0 && node->outputs[0].kind == PST_DOC_TENSOR
            ? pst_doc_tensor(graph, node->outputs[0].name)
            : NULL;
    enum pst_dtype ret;

    return t != NULL && pst_dtype_from_pt2(t->dtype, &ret) ? ret : PST_BOOL;
}

/* --- numbers as tensors --------------------------------------------------- */

struct reader {
    struct pst_import *import;
    struct pst_scope *scope;
};

static struct pst_value *tensor_of(struct reader *r,
                                   const struct pst_doc_arg *arg,
                                   unsigned depth);

static struct pst_value *emit_constant(struct reader *r,
                                       const struct pst_arg *a)
{
    const enum pst_dtype dtype = a->kind == PST_ARG_FLOAT  ? PST_F64
                                 : a->kind == PST_ARG_BOOL ? PST_BOOL
                                                           : PST_I64;

    return pst_emit(&r->import->build, &pst_op_scalar_tensor,
                    PST_ARGS(*a, pst_dtype_arg(dtype)));
}

static struct pst_value *fail(struct reader *r, const char *what)
{
    r->import->build.status = pst_diag_set(
        r->import->diag, PST_E_MODEL_ASSERTION,
        "a number that is read from data is given to %s, which is not "
        "supported: remove an assertion that does it, or write it with tensors",
        what);
    return NULL;
}

static struct pst_value *emit_calculated(struct reader *r,
                                         const struct pst_doc_node *node,
                                         unsigned depth)
{
    const struct pst_op *op = node->resolved->op;
    struct pst_value *x, *y = NULL;

    if (node->resolved->kind != PST_TARGET_SIZE || op == NULL ||
        node->n_inputs == 0 || depth == MAX_DEPTH)
        return fail(r, node->target);
    x = tensor_of(r, &node->inputs[0].arg, depth);
    if (node->n_inputs > 1)
        y = tensor_of(r, &node->inputs[1].arg, depth);
    if (x == NULL || (y == NULL && node->n_inputs > 1))
        return NULL;
    return y == NULL
               ? pst_emit(&r->import->build, op, PST_ARGS(pst_v(x)))
               : pst_emit(&r->import->build, op, PST_ARGS(pst_v(x), pst_v(y)));
}

static struct pst_value *tensor_of(struct reader *r,
                                   const struct pst_doc_arg *arg,
                                   unsigned depth)
{
    const char *name = pst_doc_number_name(arg);
    const struct pst_doc_node *node =
        name != NULL ? pst_map_get(&r->scope->numbers, name) : NULL;
    struct pst_import *import = r->import;
    struct pst_arg a;

    if (name != NULL && pst_map_has(&r->scope->read, name))
        return pst_map_get(&r->scope->read, name);
    if (node != NULL && !pst_import_knows_number(import, r->scope, name))
        return emit_calculated(r, node, depth + 1);
    import->build.status =
        pst_import_value(import, r->scope, arg, "an assertion", &a);
    if (import->build.status != PST_OK)
        return NULL;
    if (a.kind != PST_ARG_INT && a.kind != PST_ARG_FLOAT &&
        a.kind != PST_ARG_BOOL)
        return fail(r, "something else than numbers");
    return emit_constant(r, &a);
}

const struct pst_op *pst_import_tensor_row(struct pst_import *import,
                                           const struct pst_doc_graph *graph,
                                           const struct pst_doc_node *node)
{
    static const char *const names[] = {"aten.add.Tensor", "aten.sub.Tensor",
                                        "aten.mul.Tensor", "aten.div.Tensor"};
    const struct pst_doc_arg *other = find_arg(node, "other");
    const char *name = other != NULL ? pst_doc_number_name(other) : NULL;
    const struct pst_doc_number *x =
        name != NULL ? pst_doc_number(graph, name) : NULL;

    if (node->resolved->kind != PST_TARGET_OP || node->resolved->pairs ||
        x == NULL || x->kind != PST_DOC_NUMBER_EXPR ||
        pst_import_is_known(import, x->expr) ||
        pst_dtype_kind(result_dtype(graph, node)) != PST_KIND_FLOAT)
        return NULL;
    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(node->target, names[i]) == 0)
            return pst_op_find(names[i]);
    return NULL;
}

struct pst_value *pst_import_number(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_doc_arg *arg)
{
    struct reader r = {import, scope};
    struct pst_build *b = &import->build;
    struct pst_value *v = tensor_of(&r, arg, 0);

    if (v != NULL)
        v = pst_emit(b, &pst_op_detach, PST_ARGS(pst_v(v)));
    if (v != NULL && v->meta.rank > 0)
        v = pst_emit(b, &pst_op_reshape, PST_ARGS(pst_v(v), pst_ints(NULL, 0)));
    return v == NULL ? NULL
                     : pst_emit(b, &pst_op__to_copy,
                                PST_ARGS(pst_v(v), pst_dtype_arg(result_dtype(
                                                       scope->graph, node))));
}

/* --- assertions ----------------------------------------------------------- */

static void emit_assert(struct reader *r, struct pst_value *condition,
                        const char *text)
{
    if (condition != NULL)
        (void)pst_emit(&r->import->build, &pst_op__assert_async_msg,
                       PST_ARGS(pst_v(condition), pst_text(text)));
}

static void emit_limit(struct reader *r, const struct pst_doc_arg *number,
                       const struct pst_op *op, int64_t limit, const char *text)
{
    struct pst_value *x = tensor_of(r, number, 0);

    if (x != NULL)
        emit_assert(
            r,
            pst_emit(&r->import->build, op, PST_ARGS(pst_v(x), pst_i(limit))),
            text);
}

/* Handles sym_constrain_range(size, min, max); min is at least 0 for a size. */
static void limit_range(struct reader *r, const struct pst_doc_node *node,
                        const struct pst_doc_arg *number)
{
    const struct pst_doc_arg *min = pst_doc_arg(node, "min", PST_DOC_INT);
    const struct pst_doc_arg *max = pst_doc_arg(node, "max", PST_DOC_INT);
    const bool size = node->resolved->kind == PST_TARGET_RANGE_OF_SIZE;

    if (min != NULL || size)
        emit_limit(r, number, &pst_op_ge_Scalar,
                   min != NULL ? min->number.i : 0,
                   "a number read from data is below its range");
    if (max != NULL)
        emit_limit(r, number, &pst_op_le_Scalar, max->number.i,
                   "a number read from data is above its range");
}

static enum pst_status assert_on_data(struct reader *r,
                                      const struct pst_doc_node *node,
                                      const struct pst_doc_arg *number)
{
    struct pst_build *b = &r->import->build;
    const struct pst_doc_arg *text =
        pst_doc_arg(node, "assert_msg", PST_DOC_STRING);

    /* The assertion takes the id of the node before it, so that later nodes
     * keep their ids, which key random numbers. */
    b->node_id = PST_MAX(b->graph->next_node_id, 1u) - 1;
    if (node->resolved->kind == PST_TARGET_ASSERT)
        emit_assert(r, tensor_of(r, number, 0), text != NULL ? text->name : "");
    else
        limit_range(r, node, number);
    b->node_id = UINT32_MAX;
    return b->status;
}

enum pst_status pst_import_fix_number(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *node)
{
    static const char text[] = "a number read from data is not the one with "
                               "which the model was exported";
    const char *name = pst_doc_number_name(&node->outputs[0]);
    struct pst_build *b = &import->build;
    struct pst_arg wanted = {0};
    struct reader r = {import, scope};
    double have = 0.0, want;
    bool known = false;
    struct pst_value *v;
    enum pst_status status = pst_import_note_number(import, scope, node);

    if (status != PST_OK)
        return status;
    v = pst_map_get(&scope->read, name);
    status = pst_import_compute_constant(import,
                                         pst_doc_number(scope->graph, name), v);
    if (status == PST_OK)
        status = pst_import_symbol(import, scope, name, "item", &wanted);
    if (status != PST_OK)
        return status;
    if (v == NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "\"%s\" is read from no tensor", name);
    status = pst_import_fold(import, v, &known, &have);
    if (status != PST_OK)
        return status;
    if (!known) {
        b->node_id = PST_MAX(b->graph->next_node_id, 1u) - 1;
        emit_assert(&r,
                    pst_emit(b, &pst_op_eq_Scalar, PST_ARGS(pst_v(v), wanted)),
                    text);
        b->node_id = UINT32_MAX;
        return b->status;
    }
    want = wanted.kind == PST_ARG_FLOAT  ? wanted.f
           : wanted.kind == PST_ARG_BOOL ? wanted.b
                                         : (double)wanted.i;
    if (have != want)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "\"%s\" is %g in the file, but its constants make "
                            "it %g",
                            name, want, have);
    return PST_OK;
}

enum pst_status pst_import_assert(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *node)
{
    const struct pst_doc_arg *number =
        node->n_inputs > 0 ? &node->inputs[0].arg : NULL;
    const char *name = number != NULL ? pst_doc_number_name(number) : NULL;
    struct pst_symbols *symbols = &import->model->symbols;
    struct reader r = {import, scope};
    struct pst_arg arg = {0};
    enum pst_status status;

    if (name == NULL)
        return PST_OK;
    if (!pst_import_knows_number(import, scope, name))
        return assert_on_data(&r, node, number);
    if (import->build.status != PST_OK)
        return import->build.status;
    if (node->resolved->kind != PST_TARGET_ASSERT)
        return PST_OK; /* the ranges in the file include these limits */
    status = pst_import_symbol(import, scope, name, "an assertion", &arg);
    if (status == PST_OK && arg.kind == PST_ARG_BOOL && !arg.b)
        return pst_diag_set(import->diag, PST_E_MODEL_ASSERTION,
                            "the constants and sizes of the file do not meet "
                            "the condition");
    if (status != PST_OK || arg.exprs == NULL)
        return status;
    status = pst_symbols_limit(symbols, arg.exprs[0], 1, 1, import->diag);
    return status == PST_OK ? pst_symbols_check(symbols, import->diag) : status;
}
