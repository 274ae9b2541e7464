// SPDX-License-Identifier: Apache-2.0
/*
 * Assertions on numbers. What is known of sizes is checked here and limits
 * their ranges. Numbers read from data (item) become what they were before,
 * tensors of one element, so the assertion runs in each step; nothing else may
 * depend on such a number.
 */
#include "stages/frontend/import/nodes.h"
#include "stages/ops/op.h"

#include <string.h>

#define MAX_DEPTH 64 /* of arithmetic between a read and an assertion */

/* Arithmetic of Python on numbers, and the operators on tensors. */
static const char *const operators[][2] = {
    {"_operator.ge", "aten.ge.Tensor"},
    {"_operator.gt", "aten.gt.Tensor"},
    {"_operator.le", "aten.le.Tensor"},
    {"_operator.lt", "aten.lt.Tensor"},
    {"_operator.eq", "aten.eq.Tensor"},
    {"_operator.ne", "aten.ne.Tensor"},
    {"_operator.add", "aten.add.Tensor"},
    {"_operator.sub", "aten.sub.Tensor"},
    {"_operator.mul", "aten.mul.Tensor"},
    {"_operator.truediv", "aten.div.Tensor"},
    {"_operator.floordiv", "aten.floor_divide.default"},
    {"_operator.mod", "aten.remainder.Tensor"},
    {"_operator.and_", "aten.bitwise_and.Tensor"},
    {"_operator.or_", "aten.bitwise_or.Tensor"},
    {"_operator.neg", "aten.neg.default"},
    {"_operator.not_", "aten.logical_not.default"},
    {"torch.sym_not", "aten.logical_not.default"},
    {"torch.sym_max", "aten.maximum.default"},
    {"torch.sym_min", "aten.minimum.default"},
};

static const char *number_name(const json_t *arg)
{
    static const char *const tags[] = {"as_sym_int", "as_sym_float",
                                       "as_sym_bool"};
    const char *ret = NULL;

    for (size_t i = 0; i < PST_COUNT(tags) && ret == NULL; i++)
        ret = json_string_value(
            json_object_get(json_object_get(arg, tags[i]), "as_name"));
    return ret;
}

static const char *target_of(const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "target"));

    return name != NULL && pst_has_prefix(name, "torch.ops.")
               ? name + strlen("torch.ops.")
               : name;
}

enum pst_status pst_import_note_number(struct pst_import *import,
                                       struct pst_scope *scope,
                                       const json_t *node)
{
    const json_t *tensor = pst_import_arg(node, "self", "as_tensor");
    const char *name =
        number_name(json_array_get(json_object_get(node, "outputs"), 0));
    struct pst_value *v = pst_import_find(scope, tensor);

    if (name == NULL)
        return PST_OK;
    /* What stands there now, whatever is written to it later. */
    if (v != NULL)
        v = pst_functionalise_read(import->functional, v);
    if (tensor != NULL && v == NULL)
        return import->build.status != PST_OK
                   ? import->build.status
                   : pst_diag_set(import->diag, PST_ERR_INPUT,
                                  "\"%s\" is read from no tensor", name);
    if (v != NULL ? pst_map_put(&scope->read, name, v)
                  : pst_map_put(&scope->numbers, name, (void *)node))
        return PST_OK;
    return pst_diag_nomem(import->diag, strlen(name));
}

/* --- numbers as tensors --------------------------------------------------- */

struct reader {
    struct pst_import *import;
    struct pst_scope *scope;
};

static struct pst_value *tensor_of(struct reader *r, const json_t *arg,
                                   unsigned depth);

static struct pst_value *constant(struct reader *r, const struct pst_arg *a)
{
    const enum pst_dtype dtype = a->kind == PST_ARG_FLOAT  ? PST_F64
                                 : a->kind == PST_ARG_BOOL ? PST_BOOL
                                                           : PST_I64;

    return pst_emit(&r->import->build,
                    pst_op_find("aten.scalar_tensor.default"),
                    PST_ARGS(*a, pst_dtype_arg(dtype)));
}

static struct pst_value *fail(struct reader *r, const char *what)
{
    r->import->build.status = pst_diag_set(
        r->import->diag, PST_ERR_UNSUPPORTED,
        "an assertion on a number that is read from data uses %s, which is "
        "not supported there: remove the assertion or write it with tensors",
        what);
    return NULL;
}

static struct pst_value *calculated(struct reader *r, const json_t *node,
                                    unsigned depth)
{
    const json_t *inputs = json_object_get(node, "inputs");
    const char *target = target_of(node), *op = NULL;
    struct pst_value *x, *y = NULL;

    for (size_t i = 0; i < PST_COUNT(operators) && op == NULL; i++)
        if (strcmp(target, operators[i][0]) == 0)
            op = operators[i][1];
    if (op == NULL || pst_op_find(op) == NULL || depth == MAX_DEPTH)
        return fail(r, target);
    x = tensor_of(r, json_object_get(json_array_get(inputs, 0), "arg"), depth);
    if (json_array_size(inputs) > 1)
        y = tensor_of(r, json_object_get(json_array_get(inputs, 1), "arg"),
                      depth);
    if (x == NULL || (y == NULL && json_array_size(inputs) > 1))
        return NULL;
    return y == NULL ? pst_emit(&r->import->build, pst_op_find(op),
                                PST_ARGS(pst_v(x)))
                     : pst_emit(&r->import->build, pst_op_find(op),
                                PST_ARGS(pst_v(x), pst_v(y)));
}

static struct pst_value *tensor_of(struct reader *r, const json_t *arg,
                                   unsigned depth)
{
    const char *name = number_name(arg);
    const json_t *node =
        name != NULL ? pst_map_get(&r->scope->numbers, name) : NULL;
    struct pst_import *import = r->import;
    struct pst_arg a;

    if (name != NULL && pst_map_has(&r->scope->read, name))
        return pst_map_get(&r->scope->read, name);
    if (node != NULL &&
        !pst_import_is_known(import, pst_import_find_symbol(r->scope, name)))
        return calculated(r, node, depth + 1);
    import->build.status =
        pst_import_value(import, r->scope, arg, "an assertion", &a);
    if (import->build.status != PST_OK)
        return NULL;
    if (a.kind != PST_ARG_INT && a.kind != PST_ARG_FLOAT &&
        a.kind != PST_ARG_BOOL)
        return fail(r, "something else than numbers");
    return constant(r, &a);
}

/* --- assertions ----------------------------------------------------------- */

static void emit_assert(struct reader *r, struct pst_value *condition,
                        const char *text)
{
    if (condition != NULL)
        (void)pst_emit(&r->import->build, pst_op_find("aten._assert_async.msg"),
                       PST_ARGS(pst_v(condition), pst_text(text)));
}

static void emit_limit(struct reader *r, const json_t *number, const char *op,
                       const struct pst_arg *limit, const char *text)
{
    struct pst_value *x = tensor_of(r, number, 0);

    if (x != NULL)
        emit_assert(r,
                    pst_emit(&r->import->build, pst_op_find(op),
                             PST_ARGS(pst_v(x), *limit)),
                    text);
}

/* sym_constrain_range(size, min, max): no limit of a size is below 0. */
static enum pst_status limit_range(struct reader *r, const json_t *node,
                                   const json_t *number)
{
    const json_t *min = pst_import_arg(node, "min", "as_int");
    const json_t *max = pst_import_arg(node, "max", "as_int");
    const bool size = strstr(target_of(node), "for_size") != NULL;

    if (min != NULL || size) {
        const struct pst_arg a = pst_i(json_integer_value(min));

        emit_limit(r, number, "aten.ge.Scalar", &a,
                   "a number read from data is below its range");
    }
    if (max != NULL) {
        const struct pst_arg a = pst_i(json_integer_value(max));

        emit_limit(r, number, "aten.le.Scalar", &a,
                   "a number read from data is above its range");
    }
    return r->import->build.status;
}

static enum pst_status on_data(struct reader *r, const json_t *node,
                               const json_t *number)
{
    struct pst_build *b = &r->import->build;
    const char *text =
        json_string_value(pst_import_arg(node, "assert_msg", "as_string"));

    /* Random operators behind it draw what they drew without it. */
    b->node_id = PST_MAX(b->graph->next_node_id, 1u) - 1;
    if (strstr(target_of(node), "_assert_scalar") != NULL)
        emit_assert(r, tensor_of(r, number, 0), text != NULL ? text : "");
    else
        (void)limit_range(r, node, number);
    b->node_id = UINT32_MAX;
    return b->status;
}

enum pst_status pst_import_assert(struct pst_import *import,
                                  struct pst_scope *scope, const json_t *node)
{
    const json_t *number = json_object_get(
        json_array_get(json_object_get(node, "inputs"), 0), "arg");
    const char *name = number_name(number);
    struct pst_symbols *symbols = &import->model->symbols;
    struct reader r = {import, scope};
    struct pst_arg arg = {0};
    enum pst_status status;

    if (name == NULL)
        return PST_OK;
    if (!pst_import_is_known(import, pst_import_find_symbol(scope, name)))
        return on_data(&r, node, number);
    if (strcmp(target_of(node), "aten._assert_scalar.default") != 0)
        return PST_OK; /* the file's ranges have it */
    status = pst_import_symbol(import, scope, name, "an assertion", &arg);
    if (status != PST_OK || arg.exprs == NULL)
        return status;
    status = pst_symbols_limit(symbols, arg.exprs[0], 1, 1, import->diag);
    return status == PST_OK ? pst_symbols_check(symbols, import->diag) : status;
}
