// SPDX-License-Identifier: Apache-2.0
/* Nodes in program order. */
#include "stages/archive/import/import.h"
#include "stages/ops/op.h"

#include <string.h>

/* Most results of one node (chunk, unbind, split). */
#define MAX_NAMES PST_MAX_OUTS

struct names {
    const char *at[MAX_NAMES]; /* NULL: a result that is None */
    unsigned n;
};

static enum pst_status add_name(struct pst_import *import, const char *name,
                                struct names *ret)
{
    if (ret->n == MAX_NAMES)
        return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                            "more than %d results of one operator are not "
                            "supported",
                            MAX_NAMES);
    ret->at[ret->n++] = name;
    return PST_OK;
}

/* A number that follows from sizes: it is looked up where it is used. */
static bool is_number(const json_t *output)
{
    return json_object_get(output, "as_sym_int") != NULL ||
           json_object_get(output, "as_sym_float") != NULL ||
           json_object_get(output, "as_sym_bool") != NULL;
}

/* Names of a node's results, lists flattened. */
static enum pst_status read_names(struct pst_import *import, const json_t *node,
                                  struct names *ret)
{
    const json_t *outputs =
        pst_json_member(node, "outputs", JSON_ARRAY, "a node", import->diag);
    enum pst_status status = outputs != NULL ? PST_OK : PST_ERR_INPUT;
    json_t *output, *item;
    size_t i, k;

    ret->n = 0;
    json_array_foreach(outputs, i, output)
    {
        const json_t *tensor = json_object_get(output, "as_tensor");
        const json_t *list = json_object_get(output, "as_tensors");

        if (status == PST_OK && tensor != NULL)
            status = add_name(
                import, json_string_value(json_object_get(tensor, "name")),
                ret);
        else if (status == PST_OK &&
                 (json_object_get(output, "as_none") || is_number(output)))
            status = add_name(import, NULL, ret);
        else if (status == PST_OK && list == NULL)
            status = pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                  "results that are no tensors are not "
                                  "supported");
        json_array_foreach(list, k, item)
        {
            if (status == PST_OK)
                status = add_name(
                    import, json_string_value(json_object_get(item, "name")),
                    ret);
        }
    }
    return status;
}

/* The exporter calls results that nothing reads NODE_unused_K. What it records
 * of those of norms in a model of several dtypes is not what PyTorch computes.
 */
static bool is_unused(const char *name)
{
    return strstr(name, "_unused_") != NULL;
}

/* Gives the value its name in the document, checks its recorded meta. */
static enum pst_status define(struct pst_import *import,
                              struct pst_scope *scope, const char *name,
                              struct pst_value *value,
                              const struct pst_meta *meta)
{
    char ours[PST_META_TEXT], theirs[PST_META_TEXT];
    const json_t *recorded = json_object_get(scope->metas, name);
    struct pst_json_tensor t;
    enum pst_status status;

    if (pst_map_has(&scope->values, name))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "\"%s\" is defined twice", name);
    if (recorded == NULL)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "\"%s\" has no shape in the file", name);
    status = pst_json_tensor(recorded, name, &import->model->symbols,
                             &import->build.graph->arena, &t, import->diag);
    if (status == PST_OK && t.symbolic && value->dims == NULL)
        status = pst_exprs_copy(&import->build.graph->arena, t.dims,
                                t.meta.rank, &value->dims, import->diag);
    if (status != PST_OK)
        return status;
    if (!pst_meta_same(&t.meta, meta) && !is_unused(name))
        return pst_diag_set(import->diag, PST_ERR_SHAPE,
                            "\"%s\" is %s by its operator, but the file says "
                            "%s",
                            name, pst_meta_text(meta, ours),
                            pst_meta_text(&t.meta, theirs));
    if (!pst_map_put(&scope->values, name, value))
        return pst_diag_nomem(import->diag, strlen(name));
    return PST_OK;
}

/* The dtype that the file records for the first result, for factories that do
 * not say it. */
static enum pst_dtype recorded_dtype(const struct pst_scope *scope,
                                     const struct names *names)
{
    const json_t *meta = names->n > 0 && names->at[0] != NULL
                             ? json_object_get(scope->metas, names->at[0])
                             : NULL;
    const json_t *dtype = json_object_get(meta, "dtype");
    enum pst_dtype ret;

    if (json_is_integer(dtype) &&
        pst_dtype_from_pt2(json_integer_value(dtype), &ret))
        return ret;
    return PST_N_DTYPES;
}

static enum pst_status refuse_write(struct pst_import *import)
{
    return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                        "writes inside of a branch are not supported");
}

/* What the composition writes goes to the arguments as the file names them. */
static enum pst_status commit_writes(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const json_t *json,
                                     const struct pst_target *target,
                                     const struct pst_rewrite *w)
{
    enum pst_status status = PST_OK;
    struct pst_arg *raw = NULL;

    for (unsigned i = 0; i < PST_MAX_WRITES && status == PST_OK; i++) {
        if (w->writes[i] == NULL)
            continue;
        if (scope->pure)
            return refuse_write(import);
        if (raw == NULL)
            status = pst_import_bind(import, scope, json, target, true, &raw);
        if (status == PST_OK &&
            pst_functionalise_write(import->functional, raw[i].value,
                                    w->writes[i]) == NULL)
            status = import->build.status;
    }
    return status;
}

static enum pst_status import_rewrite(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target,
                                      const struct names *names,
                                      const struct pst_arg *args)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    struct pst_rewrite w;
    enum pst_status status;

    import->build.hint = recorded_dtype(scope, names);
    import->build.names = names->at;
    import->build.n_names = names->n;
    status =
        pst_op_rewrite(target->op, &import->build, args, schema->n_args, &w);
    import->build.hint = PST_N_DTYPES;
    import->build.n_names = 0;
    if (status != PST_OK)
        return status;
    if (w.n_outs != names->n)
        return pst_diag_set(import->diag, PST_ERR_SHAPE,
                            "it has %u results, but the file says %u", w.n_outs,
                            names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++)
        if (names->at[i] != NULL && w.outs[i] == NULL)
            status = pst_diag_set(import->diag, PST_ERR_SHAPE,
                                  "result %u is None, but the file names it "
                                  "\"%s\"",
                                  i, names->at[i]);
        else if (names->at[i] != NULL)
            status = define(import, scope, names->at[i], w.outs[i],
                            &w.outs[i]->meta);
    if (status == PST_OK)
        status = commit_writes(import, scope, json, target, &w);
    return status;
}

static enum pst_status import_op(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *json,
                                 const struct pst_target *target,
                                 const struct names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    enum pst_status status;
    struct pst_node *node;
    struct pst_arg *args;

    status = pst_import_bind(import, scope, json, target, false, &args);
    if (status == PST_OK && target->pairs)
        status = pst_import_pairs(import, scope, json, target, args);
    if (status != PST_OK)
        return status;
    if (scope->autocast)
        status = pst_import_autocast(import, scope, target->name, args,
                                     schema->n_args);
    if (status != PST_OK)
        return status;
    if (pst_op_is_rewrite(target->op))
        return import_rewrite(import, scope, json, target, names, args);
    import->build.hint = recorded_dtype(scope, names);
    import->build.names = names->at;
    import->build.n_names = names->n;
    node = pst_emit_node(&import->build, target->op, args, schema->n_args);
    import->build.hint = PST_N_DTYPES;
    import->build.n_names = 0;
    if (node == NULL)
        return import->build.status;
    if (node->n_outs != names->n)
        return pst_diag_set(import->diag, PST_ERR_SHAPE,
                            "it has %u results, but the file says %u",
                            node->n_outs, names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++)
        if (names->at[i] != NULL)
            status = define(import, scope, names->at[i], node->outs[i],
                            &node->outs[i]->meta);
    return status;
}

/* The result is the written value itself: both names mean it from now on. */
static enum pst_status import_inplace(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target,
                                      const struct names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    struct pst_value *written, *now;
    struct pst_arg *args;
    enum pst_status status;

    if (scope->pure)
        return refuse_write(import);
    status = pst_import_bind(import, scope, json, target, true, &args);
    if (status != PST_OK)
        return status;
    if (schema->n_args == 0 || args[0].kind != PST_ARG_VALUE)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its first argument is no tensor");
    written = args[0].value;
    import->build.names = names->at;
    import->build.n_names = names->n;
    now = pst_functionalise_inplace(import->functional, target->op, args,
                                    schema->n_args);
    import->build.n_names = 0;
    if (now == NULL)
        return import->build.status != PST_OK
                   ? import->build.status
                   : pst_diag_set(import->diag, PST_ERR_INTERNAL,
                                  "the write failed");
    if (names->n > 1)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "an in-place operator has one result");
    if (names->n == 1 && names->at[0] != NULL) /* t_() gives a new shape */
        status =
            define(import, scope, names->at[0],
                   target->op->flags & PST_OP_VIEW ? now : written, &now->meta);
    return status;
}

/* The tensor `out` holds the result and is it from now on. */
static enum pst_status import_out(struct pst_import *import,
                                  struct pst_scope *scope, const json_t *json,
                                  const struct pst_target *target,
                                  const struct names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const json_t *out = pst_import_arg(json, "out", "as_tensor");
    const char *name = json_string_value(json_object_get(out, "name"));
    struct pst_value *written =
        name != NULL ? pst_map_get(&scope->values, name) : NULL;
    struct pst_value *now;
    struct pst_arg *args;
    enum pst_status status;

    if (scope->pure)
        return refuse_write(import);
    if (written == NULL || names->n > 1)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its argument \"out\" is no tensor of the graph");
    status = pst_import_bind(import, scope, json, target, false, &args);
    if (status != PST_OK)
        return status;
    now = pst_emit(&import->build, target->op, args, schema->n_args);
    if (now != NULL)
        now = pst_functionalise_write(import->functional, written, now);
    if (now == NULL)
        return import->build.status;
    if (names->n == 0 || names->at[0] == NULL)
        return PST_OK;
    return define(import, scope, names->at[0], written, &now->meta);
}

/* A parameter may be kept wider than the file has it. */
static enum pst_dtype dtype_in_file(const struct pst_import *import,
                                    const struct pst_value *v)
{
    const struct pst_weight *w = v->kind == PST_VALUE_PARAM
                                     ? pst_model_weight(import->model, v->fqn)
                                     : NULL;

    return w != NULL ? w->meta.dtype : v->meta.dtype;
}

/* The dtype that to.* and type_as want: an argument's, the other tensor's, or
 * the tensor's own. */
static enum pst_dtype wanted_dtype(const struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const json_t *json,
                                   const struct pst_value *v)
{
    const json_t *dtype = pst_import_arg(json, "dtype", "as_scalar_type");
    const json_t *tensor = pst_import_arg(json, "other", "as_tensor");
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const struct pst_value *other =
        name != NULL ? pst_map_get(&scope->values, name) : NULL;
    enum pst_dtype ret;

    if (dtype != NULL)
        return pst_dtype_from_pt2(json_integer_value(dtype), &ret)
                   ? ret
                   : PST_N_DTYPES;
    return dtype_in_file(import, other != NULL ? other : v);
}

/* They return their input if it has the dtype. */
static enum pst_status import_convert(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target,
                                      const struct names *names)
{
    const json_t *self = pst_import_arg(json, "self", "as_tensor");
    const char *name = json_string_value(json_object_get(self, "name"));
    struct pst_value *v =
        name != NULL ? pst_map_get(&scope->values, name) : NULL;
    const bool copy = json_is_true(pst_import_arg(json, "copy", "as_bool"));

    if (v == NULL || copy || names->n != 1 || names->at[0] == NULL ||
        dtype_in_file(import, v) != v->meta.dtype ||
        wanted_dtype(import, scope, json, v) != v->meta.dtype)
        return import_op(import, scope, json, target, names);
    return define(import, scope, names->at[0], v, &v->meta);
}

/* Position of the first operand: behind the sub-graph. */
static const json_t *find_body(const json_t *inputs, size_t *ret_operands)
{
    const json_t *body = NULL;
    json_t *input;
    size_t i;

    json_array_foreach(inputs, i, input)
    {
        const json_t *arg = json_object_get(input, "arg");

        if (body == NULL && json_object_get(arg, "as_graph") != NULL) {
            body = json_object_get(json_object_get(arg, "as_graph"), "graph");
            *ret_operands = i + 1;
        }
    }
    return body;
}

/* The tensor that a graph's input, output or an operand of a call names. */
static const char *tensor_name(const json_t *arg)
{
    return json_string_value(
        json_object_get(json_object_get(arg, "as_tensor"), "name"));
}

static enum pst_status bind_operands(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const json_t *inputs, size_t first,
                                     const json_t *body,
                                     struct pst_scope *inner)
{
    const json_t *formals = json_object_get(body, "inputs");

    if (json_array_size(inputs) - first != json_array_size(formals))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its sub-graph takes %zu values, not %zu",
                            json_array_size(formals),
                            json_array_size(inputs) - first);
    for (size_t i = 0; i < json_array_size(formals); i++) {
        const char *formal = tensor_name(json_array_get(formals, i));
        const char *actual = tensor_name(
            json_object_get(json_array_get(inputs, first + i), "arg"));
        struct pst_value *v =
            actual != NULL ? pst_map_get(&scope->values, actual) : NULL;
        enum pst_status status;

        if (is_number(json_array_get(formals, i)))
            continue;
        if (formal == NULL || v == NULL)
            return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                "operand %zu of its sub-graph is no tensor", i);
        status = define(import, inner, formal, v, &v->meta);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status bind_results(struct pst_import *import,
                                    struct pst_scope *scope, const json_t *body,
                                    const struct pst_scope *inner,
                                    const struct names *names)
{
    const json_t *outputs = json_object_get(body, "outputs");
    enum pst_status status = PST_OK;

    if (json_array_size(outputs) != names->n)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "its sub-graph has %zu results, not %u",
                            json_array_size(outputs), names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        const char *name = tensor_name(json_array_get(outputs, i));
        struct pst_value *v =
            name != NULL ? pst_map_get(&inner->values, name) : NULL;

        if (names->at[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(import->diag, PST_ERR_INPUT,
                                "result %u of its sub-graph is no tensor of it",
                                i);
        status = define(import, scope, names->at[i], v, &v->meta);
    }
    return status;
}

/* Bodies share their operands' storage, and their results are values of the
 * outer graph from then on. inner: what holds in the body. */
static enum pst_status inline_body(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *json,
                                   struct pst_scope inner,
                                   const struct names *names)
{
    const json_t *inputs = json_object_get(json, "inputs");
    size_t first = 0;
    const json_t *body = find_body(inputs, &first);
    enum pst_status status;

    if (body == NULL)
        return pst_diag_set(import->diag, PST_ERR_INPUT, "it has no sub-graph");
    inner.graph = body;
    inner.metas = json_object_get(body, "tensor_values");
    pst_map_init(&inner.values, PST_TAG_ARCHIVE);
    status = bind_operands(import, scope, inputs, first, body, &inner);
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner, body);
    if (status == PST_OK)
        status = bind_results(import, scope, body, &inner, names);
    pst_map_fini(&inner.values);
    return status;
}

/* What holds inside of a region that says nothing else. */
static struct pst_scope inherit(const struct pst_scope *scope)
{
    return (struct pst_scope){.no_grad = scope->no_grad,
                              .autocast = scope->autocast,
                              .low = scope->low,
                              .pure = scope->pure};
}

static enum pst_status import_set_grad(struct pst_import *import,
                                       struct pst_scope *scope,
                                       const json_t *json,
                                       const struct names *names)
{
    const json_t *flag = json_object_get(
        json_object_get(json_array_get(json_object_get(json, "inputs"), 0),
                        "arg"),
        "as_bool");
    struct pst_scope inner = inherit(scope);

    inner.no_grad = json_is_false(flag);
    return inline_body(import, scope, json, inner, names);
}

static enum pst_status import_autocast(struct pst_import *import,
                                       struct pst_scope *scope,
                                       const json_t *json,
                                       const struct names *names)
{
    struct pst_scope inner = inherit(scope);

    if (!pst_import_autocast_mode(json, &inner.autocast, &inner.low))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "it does not say what it casts");
    return inline_body(import, scope, json, inner, names);
}

/* --- branches ----------------------------------------------------------- */

/* Results of branch k (input 1 or 2 of the node), by their order. */
static enum pst_status import_branch(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const json_t *inputs, size_t k,
                                     const json_t *operands, unsigned n,
                                     struct pst_value **ret)
{
    const json_t *body = json_object_get(
        json_object_get(json_object_get(json_array_get(inputs, k), "arg"),
                        "as_graph"),
        "graph");
    const json_t *formals = json_object_get(body, "inputs");
    const json_t *outputs = json_object_get(body, "outputs");
    struct pst_scope inner = inherit(scope);
    enum pst_status status = PST_OK;

    if (body == NULL || json_array_size(outputs) != n ||
        json_array_size(formals) != json_array_size(operands))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "branch %zu does not fit its operands and results",
                            k);
    inner.pure = true;
    inner.graph = body;
    inner.metas = json_object_get(body, "tensor_values");
    pst_map_init(&inner.values, PST_TAG_ARCHIVE);
    for (size_t i = 0; i < json_array_size(formals) && status == PST_OK; i++) {
        const char *formal = tensor_name(json_array_get(formals, i));
        const char *actual = json_string_value(
            json_object_get(json_array_get(operands, i), "name"));
        struct pst_value *v =
            actual != NULL ? pst_map_get(&scope->values, actual) : NULL;

        if (formal == NULL || v == NULL)
            status = pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                  "operand %zu of a branch is no tensor", i);
        else
            status = define(import, &inner, formal, v, &v->meta);
    }
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner, body);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        const char *name = tensor_name(json_array_get(outputs, i));
        struct pst_value *v =
            name != NULL ? pst_map_get(&inner.values, name) : NULL;

        if (v == NULL)
            status = pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                  "result %u of a branch is no tensor", i);
        else if ((ret[i] = pst_functionalise_read(import->functional, v)) ==
                 NULL)
            status = import->build.status;
    }
    pst_map_fini(&inner.values);
    return status;
}

/* Both branches are computed, the bool chooses between their results. */
static enum pst_status import_cond(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *json,
                                   const struct names *names)
{
    const json_t *inputs = json_object_get(json, "inputs");
    const char *name =
        tensor_name(json_object_get(json_array_get(inputs, 0), "arg"));
    const json_t *operands = json_object_get(
        json_object_get(json_array_get(inputs, 3), "arg"), "as_tensors");
    struct pst_value *pred =
        name != NULL ? pst_map_get(&scope->values, name) : NULL;
    struct pst_value *of[2][MAX_NAMES];
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
        status = import_branch(import, scope, inputs, k + 1, operands, names->n,
                               of[k]);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v;

        if (names->at[i] == NULL)
            continue;
        v = pst_emit(&import->build, &pst_op_where_self,
                     PST_ARGS(pst_v(pred), pst_v(of[0][i]), pst_v(of[1][i])));
        status = v == NULL ? import->build.status
                           : define(import, scope, names->at[i], v, &v->meta);
    }
    return status;
}

static enum pst_status import_node(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *json,
                                   const struct pst_target *target)
{
    struct names names;
    enum pst_status status = read_names(import, json, &names);

    if (status != PST_OK)
        return status;
    import->build.module = import->place.module;
    import->build.call = import->place.call;
    import->build.source = import->place.source;
    import->build.no_grad = scope->no_grad;
    switch (target->kind) {
    case PST_TARGET_OP:
        return import_op(import, scope, json, target, &names);
    case PST_TARGET_INPLACE:
        return import_inplace(import, scope, json, target, &names);
    case PST_TARGET_OUT:
        return import_out(import, scope, json, target, &names);
    case PST_TARGET_CONVERT:
        return import_convert(import, scope, json, target, &names);
    case PST_TARGET_NOTHING:
        return PST_OK;
    case PST_TARGET_SIZE:
        for (unsigned i = 0; i < names.n; i++)
            if (names.at[i] != NULL)
                return pst_diag_set(import->diag, PST_ERR_INPUT,
                                    "sizes do not make a tensor");
        return PST_OK;
    case PST_TARGET_ASSERT:
        return pst_import_assert(import, scope, json);
    case PST_TARGET_SET_GRAD:
        return import_set_grad(import, scope, json, &names);
    case PST_TARGET_AUTOCAST:
        return import_autocast(import, scope, json, &names);
    case PST_TARGET_COND:
        return import_cond(import, scope, json, &names);
    case PST_TARGET_NONE:
        break;
    }
    return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED, "not supported: %s",
                        target->reason);
}

enum pst_status pst_import_nodes(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *graph)
{
    const json_t *nodes = json_object_get(graph, "nodes");
    enum pst_status status;
    json_t *node;
    size_t i;

    json_array_foreach(nodes, i, node)
    {
        const struct pst_target target = pst_import_target(node, scope->metas);

        status = pst_import_place(import, node);
        if (status == PST_OK && !pst_import_is_idle(import, node))
            status = import_node(import, scope, node, &target);
        if (status == PST_OK)
            continue;
        pst_import_blame(import, node, target.name);
        return status;
    }
    return PST_OK;
}
