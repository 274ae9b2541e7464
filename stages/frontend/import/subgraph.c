// SPDX-License-Identifier: Apache-2.0
/* Nodes that hold sub-graphs: regions, which are inlined, and branches. */
#include "stages/frontend/import/nodes.h"

/* What holds inside of a sub-graph whose node says nothing else. */
static struct pst_scope inherit(const struct pst_scope *scope)
{
    return (struct pst_scope){.no_grad = scope->no_grad,
                              .autocast = scope->autocast,
                              .low = scope->low,
                              .pure = scope->pure};
}

/* Leave the scope after it. */
static void enter(struct pst_scope *inner, const json_t *body)
{
    inner->graph = body;
    inner->metas = json_object_get(body, "tensor_values");
    pst_map_init(&inner->values, PST_TAG_ARCHIVE);
    pst_map_init(&inner->read, PST_TAG_ARCHIVE);
    pst_map_init(&inner->numbers, PST_TAG_ARCHIVE);
}

static void leave(struct pst_scope *inner)
{
    pst_map_fini(&inner->values);
    pst_map_fini(&inner->read);
    pst_map_fini(&inner->numbers);
}

/* The sub-graph that an input of the node is; NULL: it is none. */
static const json_t *body_of(const json_t *input)
{
    return json_object_get(
        json_object_get(json_object_get(input, "arg"), "as_graph"), "graph");
}

/* Position of the first operand: behind the sub-graph. */
static const json_t *find_body(const json_t *inputs, size_t *ret_operands)
{
    json_t *input;
    size_t i;

    json_array_foreach(inputs, i, input)
    {
        const json_t *body = body_of(input);

        *ret_operands = i + 1;
        if (body != NULL)
            return body;
    }
    return NULL;
}

/* Operand i: what the body calls `formal` is the caller's `actual`. */
static enum pst_status bind_operand(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const json_t *formal, const json_t *actual,
                                    size_t i, struct pst_scope *inner)
{
    const char *name = json_string_value(
        json_object_get(json_object_get(formal, "as_tensor"), "name"));
    struct pst_value *v = pst_import_find(scope, actual);

    if (name == NULL || v == NULL)
        return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                            "operand %zu of its sub-graph is no tensor", i);
    return pst_import_define(import, inner, name, v, &v->meta);
}

/* Result i of the body; NULL: it is no tensor of it. */
static struct pst_value *result_of(const struct pst_scope *inner, size_t i)
{
    const json_t *outputs = json_object_get(inner->graph, "outputs");

    return pst_import_find(
        inner, json_object_get(json_array_get(outputs, i), "as_tensor"));
}

/* --- regions ------------------------------------------------------------ */

static enum pst_status bind_operands(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const json_t *inputs, size_t first,
                                     struct pst_scope *inner)
{
    const json_t *formals = json_object_get(inner->graph, "inputs");
    enum pst_status status = PST_OK;

    if (json_array_size(inputs) - first != json_array_size(formals))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its sub-graph takes %zu values, not %zu",
                            json_array_size(formals),
                            json_array_size(inputs) - first);
    for (size_t i = 0; i < json_array_size(formals) && status == PST_OK; i++) {
        const json_t *formal = json_array_get(formals, i);
        const json_t *actual =
            json_object_get(json_array_get(inputs, first + i), "arg");

        if (!pst_import_is_number(formal))
            status =
                bind_operand(import, scope, formal,
                             json_object_get(actual, "as_tensor"), i, inner);
    }
    return status;
}

static enum pst_status bind_results(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_scope *inner,
                                    const struct pst_names *names)
{
    const size_t n = json_array_size(json_object_get(inner->graph, "outputs"));
    enum pst_status status = PST_OK;

    if (n != names->n)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its sub-graph has %zu results, not %u", n,
                            names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v = result_of(inner, i);

        if (names->at[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(import->diag, PST_ERR_INPUT,
                                "result %u of its sub-graph is no tensor of it",
                                i);
        status = pst_import_define(import, scope, names->at[i], v, &v->meta);
    }
    return status;
}

/* Bodies share their operands' storage, and their results are values of the
 * outer graph from then on. inner: what holds in the body. */
static enum pst_status inline_body(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *json,
                                   struct pst_scope inner,
                                   const struct pst_names *names)
{
    const json_t *inputs = json_object_get(json, "inputs");
    size_t first = 0;
    const json_t *body = find_body(inputs, &first);
    enum pst_status status;

    if (body == NULL)
        return pst_diag_set(import->diag, PST_ERR_INPUT, "it has no sub-graph");
    enter(&inner, body);
    status = bind_operands(import, scope, inputs, first, &inner);
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner, body);
    if (status == PST_OK)
        status = bind_results(import, scope, &inner, names);
    leave(&inner);
    return status;
}

enum pst_status pst_import_set_grad(struct pst_import *import,
                                    struct pst_scope *scope, const json_t *json,
                                    const struct pst_names *names)
{
    const json_t *flag = json_object_get(
        json_object_get(json_array_get(json_object_get(json, "inputs"), 0),
                        "arg"),
        "as_bool");
    struct pst_scope inner = inherit(scope);

    inner.no_grad = json_is_false(flag);
    return inline_body(import, scope, json, inner, names);
}

enum pst_status pst_import_autocast_region(struct pst_import *import,
                                           struct pst_scope *scope,
                                           const json_t *json,
                                           const struct pst_names *names)
{
    struct pst_scope inner = inherit(scope);

    if (!pst_import_autocast_mode(json, &inner.autocast, &inner.low))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "it does not say what it casts");
    return inline_body(import, scope, json, inner, names);
}

/* --- branches ----------------------------------------------------------- */

/* The n results of a branch, which may write nothing from before it. */
static enum pst_status import_branch(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const json_t *body, const json_t *operands,
                                     unsigned n, struct pst_value **ret)
{
    const json_t *formals = json_object_get(body, "inputs");
    struct pst_scope inner = inherit(scope);
    enum pst_status status = PST_OK;

    if (body == NULL ||
        json_array_size(json_object_get(body, "outputs")) != n ||
        json_array_size(formals) != json_array_size(operands))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "a branch does not fit its operands and results");
    enter(&inner, body);
    inner.pure = true;
    for (size_t i = 0; i < json_array_size(formals) && status == PST_OK; i++)
        status = bind_operand(import, scope, json_array_get(formals, i),
                              json_array_get(operands, i), i, &inner);
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner, body);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        struct pst_value *v = result_of(&inner, i);

        if (v == NULL) {
            status = pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                  "result %u of a branch is no tensor", i);
            continue;
        }
        ret[i] = pst_functionalise_read(import->functional, v);
        if (ret[i] == NULL)
            status = import->build.status;
    }
    leave(&inner);
    return status;
}

enum pst_status pst_import_cond(struct pst_import *import,
                                struct pst_scope *scope, const json_t *json,
                                const struct pst_names *names)
{
    const json_t *inputs = json_object_get(json, "inputs");
    const json_t *of_bool = json_object_get(json_array_get(inputs, 0), "arg");
    const json_t *operands = json_object_get(
        json_object_get(json_array_get(inputs, 3), "arg"), "as_tensors");
    struct pst_value *pred =
        pst_import_find(scope, json_object_get(of_bool, "as_tensor"));
    struct pst_value *of[2][PST_MAX_OUTS];
    enum pst_status status = PST_OK;

    if (pred == NULL || pred->meta.dtype != PST_BOOL ||
        pst_meta_numel(&pred->meta) != 1)
        return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                            "what it depends on is no bool tensor of one "
                            "element");
    pred = pst_functionalise_read(import->functional, pred);
    if (pred == NULL)
        return import->build.status;
    for (unsigned k = 0; k < 2 && status == PST_OK; k++)
        status =
            import_branch(import, scope, body_of(json_array_get(inputs, k + 1)),
                          operands, names->n, of[k]);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v;

        if (names->at[i] == NULL)
            continue;
        v = pst_emit(&import->build, &pst_op_where_self,
                     PST_ARGS(pst_v(pred), pst_v(of[0][i]), pst_v(of[1][i])));
        status = v == NULL ? import->build.status
                           : pst_import_define(import, scope, names->at[i], v,
                                               &v->meta);
    }
    return status;
}
