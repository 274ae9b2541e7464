// SPDX-License-Identifier: Apache-2.0
/* Nodes in program order. */
#include "stages/frontend/import/nodes.h"

#include <string.h>

static enum pst_status add_name(struct pst_import *import, const char *name,
                                struct pst_names *ret)
{
    if (ret->n == PST_MAX_OUTS)
        return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                            "more than %d results of one operator are not "
                            "supported",
                            PST_MAX_OUTS);
    ret->at[ret->n++] = name;
    return PST_OK;
}

bool pst_import_is_number(const json_t *output)
{
    return json_object_get(output, "as_sym_int") != NULL ||
           json_object_get(output, "as_sym_float") != NULL ||
           json_object_get(output, "as_sym_bool") != NULL;
}

static enum pst_status read_names(struct pst_import *import, const json_t *node,
                                  struct pst_names *ret)
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
        else if (status == PST_OK && (json_object_get(output, "as_none") ||
                                      pst_import_is_number(output)))
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

struct pst_value *pst_import_find(const struct pst_scope *scope,
                                  const json_t *tensor)
{
    const char *name = json_string_value(json_object_get(tensor, "name"));

    return name != NULL ? pst_map_get(&scope->values, name) : NULL;
}

/* The exporter calls results that nothing reads NODE_unused_K. What it records
 * of those of norms in a model of several dtypes is not what PyTorch computes.
 */
static bool is_unused(const char *name)
{
    return strstr(name, "_unused_") != NULL;
}

enum pst_status pst_import_define(struct pst_import *import,
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
    if (status != PST_OK)
        return status;
    if (!pst_meta_same(&t.meta, meta) && !is_unused(name))
        return pst_diag_set(import->diag, PST_ERR_SHAPE,
                            "\"%s\" is %s by its operator, but the file says "
                            "%s",
                            name, pst_meta_text(meta, ours),
                            pst_meta_text(&t.meta, theirs));
    if (!is_unused(name))
        status = pst_import_lay_out(import, scope, name, &t, &value);
    if (status == PST_OK && t.symbolic && value->dims == NULL)
        status = pst_exprs_copy(&import->build.graph->arena, t.dims,
                                t.meta.rank, &value->dims, import->diag);
    if (status != PST_OK)
        return status;
    if (!pst_map_put(&scope->values, name, value))
        return pst_diag_nomem(import->diag, strlen(name));
    return PST_OK;
}

/* The dtype that the file records for the first result, for factories that do
 * not say it. */
static enum pst_dtype recorded_dtype(const struct pst_scope *scope,
                                     const struct pst_names *names)
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
        if (status == PST_OK)
            status = pst_import_writes_storage(import, raw[i].value);
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
                                      const struct pst_names *names,
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
            status = pst_import_define(import, scope, names->at[i], w.outs[i],
                                       &w.outs[i]->meta);
    if (status == PST_OK)
        status = pst_import_joins_storages(import, target->op, args,
                                           schema->n_args, w.outs, w.n_outs);
    if (status == PST_OK)
        status = commit_writes(import, scope, json, target, &w);
    return status;
}

static enum pst_status import_op(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *json,
                                 const struct pst_target *target,
                                 const struct pst_names *names)
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
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *value = node->outs[i];

        if (names->at[i] == NULL)
            continue;
        status = pst_import_dropout(import, node, &value);
        if (status == PST_OK)
            status = pst_import_define(import, scope, names->at[i], value,
                                       &value->meta);
    }
    if (status == PST_OK)
        status = pst_import_joins_storages(
            import, target->op, args, schema->n_args, node->outs, node->n_outs);
    return status;
}

/* The result is the written value itself: both names mean it from now on. */
static enum pst_status import_inplace(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target,
                                      const struct pst_names *names)
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
    if (!(target->op->flags & PST_OP_VIEW))
        status = pst_import_writes_storage(import, written);
    if (status != PST_OK)
        return status;
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
        status = pst_import_define(
            import, scope, names->at[0],
            target->op->flags & PST_OP_VIEW ? now : written, &now->meta);
    return status;
}

/* The tensor `out` holds the result and is it from now on. */
static enum pst_status import_out(struct pst_import *import,
                                  struct pst_scope *scope, const json_t *json,
                                  const struct pst_target *target,
                                  const struct pst_names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const json_t *out = pst_import_arg(json, "out", "as_tensor");
    struct pst_value *written = pst_import_find(scope, out);
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
    status = pst_import_writes_storage(import, written);
    if (status != PST_OK)
        return status;
    now = pst_emit(&import->build, target->op, args, schema->n_args);
    if (now != NULL)
        now = pst_functionalise_write(import->functional, written, now);
    if (now == NULL)
        return import->build.status;
    if (names->n == 0 || names->at[0] == NULL)
        return PST_OK;
    return pst_import_define(import, scope, names->at[0], written, &now->meta);
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
    const struct pst_value *other = pst_import_find(scope, tensor);
    enum pst_dtype ret;

    if (dtype != NULL)
        return pst_dtype_from_pt2(json_integer_value(dtype), &ret)
                   ? ret
                   : PST_N_DTYPES;
    return dtype_in_file(import, other != NULL ? other : v);
}

static const json_t *recorded_strides(const struct pst_scope *scope,
                                      const char *name)
{
    return json_object_get(json_object_get(scope->metas, name), "strides");
}

/* They return their input if it has the dtype, and lies in memory as the result
 * does. */
static enum pst_status import_convert(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target,
                                      const struct pst_names *names)
{
    const json_t *self = pst_import_arg(json, "self", "as_tensor");
    struct pst_value *v = pst_import_find(scope, self);
    const bool copy = json_is_true(pst_import_arg(json, "copy", "as_bool"));
    const char *self_name = json_string_value(json_object_get(self, "name"));

    if (v == NULL || copy || names->n != 1 || names->at[0] == NULL ||
        dtype_in_file(import, v) != v->meta.dtype ||
        wanted_dtype(import, scope, json, v) != v->meta.dtype)
        return import_op(import, scope, json, target, names);
    if (!json_equal(recorded_strides(scope, self_name),
                    recorded_strides(scope, names->at[0])))
        v = pst_emit(
            &import->build, pst_op_find("aten.clone.default"),
            PST_ARGS(pst_v(pst_functionalise_read(import->functional, v))));
    if (v == NULL)
        return import->build.status;
    return pst_import_define(import, scope, names->at[0], v, &v->meta);
}

/* A node of its own would do nothing in a step. Complex numbers were compared
 * with the file where they are defined. */
static enum pst_status check_metadata(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const json_t *json,
                                      const struct pst_target *target)
{
    struct pst_infer c = {.schema = pst_op_schema(target->op),
                          .hint = PST_N_DTYPES,
                          .diag = import->diag};
    struct pst_value seen;
    struct pst_arg *args;
    enum pst_status status;

    if (pst_import_complex(json, scope->metas))
        return PST_OK;
    status = pst_import_bind(import, scope, json, target, true, &args);
    if (status != PST_OK)
        return status;
    if (args[0].kind == PST_ARG_VALUE) {
        seen = *args[0].value;
        seen.meta.dtype = dtype_in_file(import, &seen);
        args[0].value = &seen;
    }
    c.args = args;
    return pst_op_infer(target->op, &c);
}

static enum pst_status import_node(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *json,
                                   const struct pst_target *target)
{
    struct pst_names names;
    enum pst_status status = read_names(import, json, &names);

    if (status != PST_OK)
        return status;
    import->build.module = import->place.module;
    import->build.call = import->place.call;
    import->build.source = import->place.source;
    import->build.no_grad = scope->no_grad;
    import->build.origin = target->name;
    import->build.is_function = !import->place.library;
    if (target->op != NULL && (target->op->flags & PST_OP_STORAGE))
        status = pst_import_reads_storage(import, scope, json);
    if (status != PST_OK)
        return status;
    switch (target->kind) {
    case PST_TARGET_OP:
        return import_op(import, scope, json, target, &names);
    case PST_TARGET_INPLACE:
        return import_inplace(import, scope, json, target, &names);
    case PST_TARGET_OUT:
        return import_out(import, scope, json, target, &names);
    case PST_TARGET_CONVERT:
        return import_convert(import, scope, json, target, &names);
    case PST_TARGET_METADATA:
        return check_metadata(import, scope, json, target);
    case PST_TARGET_SIZE:
        for (unsigned i = 0; i < names.n; i++)
            if (names.at[i] != NULL)
                return pst_diag_set(import->diag, PST_ERR_INPUT,
                                    "sizes do not make a tensor");
        return pst_import_note_number(import, scope, json);
    case PST_TARGET_ASSERT:
        return pst_import_assert(import, scope, json);
    case PST_TARGET_SET_GRAD:
        return pst_import_set_grad(import, scope, json, &names);
    case PST_TARGET_AUTOCAST:
        return pst_import_autocast_region(import, scope, json, &names);
    case PST_TARGET_COND:
        return pst_import_cond(import, scope, json, &names);
    case PST_TARGET_NONE:
        break;
    }
    return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED, "not supported: %s",
                        target->reason);
}

/* Both branches run and a bool chooses: what the other one asserts need not
 * hold. */
static enum pst_status refuse_asserts(struct pst_import *import, size_t first)
{
    const struct pst_graph *graph = import->build.graph;

    for (size_t i = first; i < graph->nodes.n; i++)
        if (pst_op_runs_for_effect(graph->nodes.at[i]->op))
            return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                "assertions inside of a branch are not "
                                "supported: assert before the branch");
    return PST_OK;
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
        const size_t first = import->build.graph->nodes.n;

        status = pst_import_place(import, node);
        if (status == PST_OK)
            status = pst_import_is_idle(import, node)
                         ? pst_import_note_number(import, scope, node)
                         : import_node(import, scope, node, &target);
        if (status == PST_OK && scope->pure)
            status = refuse_asserts(import, first);
        if (status == PST_OK)
            continue;
        pst_import_blame(import, node, target.name);
        return status;
    }
    return PST_OK;
}
