// SPDX-License-Identifier: Apache-2.0
/* From graph_module to a graph: inputs, nodes, outputs. */
#include "stages/frontend/import/import.h"

#include <string.h>

static const json_t *signature(const struct pst_import *import)
{
    return json_object_get(import->module, "signature");
}

/* FQNs of all submodules. Entries "a@1" of modules whose call signature was
 * kept are further calls, not modules. */
static enum pst_status read_modules(struct pst_import *import)
{
    const json_t *list = json_object_get(import->module, "module_call_graph");
    struct pst_model *model = import->model;
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        const char *fqn = json_string_value(json_object_get(entry, "fqn"));
        const char *at = fqn != NULL ? strrchr(fqn, '@') : NULL;
        char *copy;

        if (fqn == NULL)
            return pst_diag_set(import->diag, PST_ERR_INPUT,
                                "module_call_graph: entry %zu has no name", i);
        if (at != NULL && json_is_object(json_object_get(entry, "signature")) &&
            at[1] != '\0' && at[1 + strspn(at + 1, "0123456789")] == '\0')
            continue;
        if (pst_map_has(&import->fqns, fqn))
            continue;
        copy = pst_arena_strdup(&model->arena, fqn);
        if (copy == NULL || !pst_map_put(&import->fqns, fqn, copy) ||
            (copy[0] != '\0' &&
             !pst_vec_push(PST_TAG_ARCHIVE, &model->modules, copy)))
            return pst_diag_nomem(import->diag, strlen(fqn));
    }
    return PST_OK;
}

/* The root's calling convention; NULL if the file has none. */
static const json_t *root_signature(const struct pst_import *import)
{
    const json_t *root =
        json_array_get(json_object_get(import->module, "module_call_graph"), 0);

    return json_object_get(root, "signature");
}

static enum pst_status read_paths(struct pst_import *import, const char *spec,
                                  bool args, struct pst_paths *ret)
{
    const json_t *root = root_signature(import);
    const char *text = json_string_value(json_object_get(root, spec));

    *ret = (struct pst_paths){0};
    if (text == NULL)
        return PST_OK;
    return pst_pytree_paths(
        text, args, json_object_get(root, "forward_arg_names"),
        json_object_get(import->module, "treespec_namedtuple_fields"),
        &import->model->arena, ret, import->diag);
}

static enum pst_status add_input(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *arg,
                                 const char *path)
{
    struct pst_diag *diag = import->diag;
    const json_t *tensor = json_object_get(arg, "as_tensor");
    const char *name;
    struct pst_json_tensor t;
    struct pst_value *v;
    enum pst_status status;

    if (tensor == NULL)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "input \"%s\" of the model is no tensor: free "
                            "integers and objects are not supported",
                            path != NULL ? path : "?");
    name = pst_json_text(tensor, "name", "an input of the signature", diag);
    if (name == NULL)
        return PST_ERR_INPUT;
    status = pst_json_tensor(json_object_get(scope->metas, name), name,
                             &import->model->symbols,
                             &import->build.graph->arena, &t, diag);
    if (status != PST_OK)
        return status;
    if (pst_map_has(&scope->values, name))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "two inputs of the graph are called \"%s\"", name);
    pst_meta_set_contiguous(&t.meta);
    v = pst_graph_add_value(import->build.graph, PST_VALUE_INPUT,
                            path != NULL ? path : name, NULL, &t.meta);
    if (v == NULL || !pst_map_put(&scope->values, name, v))
        return pst_diag_nomem(diag, sizeof(*v));
    return pst_exprs_copy(&import->build.graph->arena,
                          t.symbolic ? t.dims : NULL, t.meta.rank, &v->dims,
                          diag);
}

/* User inputs in their order, with the names of the model's arguments; specs
 * and leaves of the arguments run side by side. */
static enum pst_status read_inputs(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *specs)
{
    struct pst_paths paths;
    size_t i, leaf = 0, n = 0;
    enum pst_status status;
    json_t *spec;

    status = read_paths(import, "in_spec", true, &paths);
    json_array_foreach(specs, i, spec)
    {
        n += json_object_get(spec, "user_input") != NULL ||
             json_object_get(spec, "constant_input") != NULL;
    }
    if (json_object_get(root_signature(import), "forward_arg_names") == NULL ||
        n != paths.n)
        paths.n = 0; /* placeholders name them then */
    json_array_foreach(specs, i, spec)
    {
        json_t *payload;
        const char *tag = pst_json_union(
            spec, &payload, "an input of the signature", import->diag);
        const char *path = leaf < paths.n ? paths.at[leaf] : NULL;

        if (tag == NULL)
            return PST_ERR_INPUT;
        if (status != PST_OK)
            return status;
        if (strcmp(tag, "user_input") == 0)
            status =
                add_input(import, scope, json_object_get(payload, "arg"), path);
        else if (strcmp(tag, "custom_obj") == 0)
            status = pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                  "inputs of the kind \"%s\" are not supported",
                                  tag);
        leaf += strcmp(tag, "user_input") == 0 ||
                strcmp(tag, "constant_input") == 0;
    }
    return status;
}

/* Inputs of the graph and specs must name the same things. */
static enum pst_status check_inputs(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const json_t *inputs, const json_t *specs)
{
    size_t i;
    json_t *input;

    if (json_array_size(inputs) != json_array_size(specs))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "the graph has %zu inputs, its signature %zu",
                            json_array_size(inputs), json_array_size(specs));
    json_array_foreach(inputs, i, input)
    {
        const char *name = json_string_value(
            json_object_get(json_object_get(input, "as_tensor"), "name"));

        /* A token stands for the order of effects: it has no value. */
        if (json_object_get(json_array_get(specs, i), "token") != NULL)
            continue;
        if (name != NULL && !pst_map_has(&scope->values, name))
            return pst_diag_set(import->diag, PST_ERR_INPUT,
                                "input \"%s\" of the graph is not in its "
                                "signature",
                                name);
    }
    return PST_OK;
}

static enum pst_status add_update(struct pst_import *import,
                                  struct pst_scope *scope, const char *tag,
                                  const json_t *payload)
{
    const bool buffer = strcmp(tag, "buffer_mutation") == 0;
    const char *name = pst_json_text(
        payload, buffer ? "buffer_name" : "user_input_name", tag, import->diag);
    struct pst_output out = {.kind = buffer ? PST_OUTPUT_BUFFER_UPDATE
                                            : PST_OUTPUT_INPUT_UPDATE};
    enum pst_status status;
    json_t *arg = NULL;

    if (name == NULL)
        return PST_ERR_INPUT;
    out.target = pst_map_get(buffer ? &import->state : &scope->values, name);
    if (out.target != NULL)
        out.target = pst_functionalise_home(import->functional, out.target);
    if (out.target == NULL ||
        (out.target->kind != PST_VALUE_BUFFER && buffer) ||
        (out.target->kind != PST_VALUE_INPUT && !buffer))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "%s of \"%s\", which is none", tag, name);
    arg = json_pack("{s:O}", "as_tensor", json_object_get(payload, "arg"));
    if (arg == NULL)
        return pst_diag_nomem(import->diag, 0);
    status = pst_import_value(import, scope, arg, tag, &out.arg);
    json_decref(arg);
    if (status != PST_OK || out.arg.value == out.target)
        return status;
    if (!pst_meta_same(&out.arg.value->meta, &out.target->meta))
        return pst_diag_set(import->diag, PST_ERR_SHAPE,
                            "%s of \"%s\" has another shape or dtype", tag,
                            name);
    out.path = out.target->name;
    return pst_graph_add_output(import->build.graph, &out, import->diag);
}

static enum pst_status read_output(struct pst_import *import,
                                   struct pst_scope *scope, const json_t *spec,
                                   const struct pst_paths *paths, size_t *leaf)
{
    struct pst_output out = {.kind = PST_OUTPUT_USER};
    json_t *payload;
    const char *tag = pst_json_union(
        spec, &payload, "an output of the signature", import->diag);
    enum pst_status status;
    char where[32];

    if (tag == NULL)
        return PST_ERR_INPUT;
    if (strcmp(tag, "token") == 0)
        return PST_OK;
    if (strcmp(tag, "buffer_mutation") == 0 ||
        strcmp(tag, "user_input_mutation") == 0)
        return add_update(import, scope, tag, payload);
    if (strcmp(tag, "parameter_mutation") == 0)
        return pst_diag_set(
            import->diag, PST_ERR_UNSUPPORTED,
            "the model writes its parameter \"%s\", which is "
            "not supported yet",
            json_string_value(json_object_get(payload, "parameter_name")));
    if (strcmp(tag, "user_output") != 0)
        return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                            "outputs of the kind \"%s\" are not supported: "
                            "gradients are derived here, export the model's "
                            "forward",
                            tag);
    snprintf(where, sizeof(where), "output %zu", *leaf);
    status = pst_import_value(import, scope, json_object_get(payload, "arg"),
                              where, &out.arg);
    if (status != PST_OK)
        return status;
    out.path = *leaf < paths->n ? paths->at[*leaf]
                                : pst_arena_printf(&import->build.graph->arena,
                                                   "%zu", *leaf);
    if (out.path == NULL)
        return pst_diag_nomem(import->diag, 0);
    ++*leaf;
    return pst_graph_add_output(import->build.graph, &out, import->diag);
}

static enum pst_status read_outputs(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const json_t *graph)
{
    const json_t *outputs = json_object_get(graph, "outputs");
    const json_t *specs = json_object_get(signature(import), "output_specs");
    struct pst_paths paths;
    enum pst_status status;
    size_t i, leaf = 0;
    json_t *spec;

    if (json_array_size(outputs) != json_array_size(specs))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "the graph has %zu outputs, its signature %zu",
                            json_array_size(outputs), json_array_size(specs));
    import->build.module = import->build.source = "";
    import->build.call = 0;
    import->build.no_grad = false;
    status = read_paths(import, "out_spec", false, &paths);
    json_array_foreach(specs, i, spec)
    {
        if (status == PST_OK)
            status = read_output(import, scope, spec, &paths, &leaf);
    }
    return status;
}

/* A written window that shares its memory would have to be written through. */
static enum pst_status check_updates(const struct pst_import *import)
{
    const struct pst_graph *graph = import->build.graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *out = &graph->outputs.at[i];
        const char *other;

        if (out->kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        other = pst_map_get(&import->shared, out->target->fqn);
        if (other != NULL)
            return pst_diag_set(
                import->diag, PST_ERR_UNSUPPORTED,
                "the model writes \"%s\", which shares memory "
                "with %s%s%s: not supported yet",
                out->target->fqn,
                strcmp(other, out->target->fqn) == 0 ? "itself" : "\"",
                strcmp(other, out->target->fqn) == 0 ? "" : other,
                strcmp(other, out->target->fqn) == 0 ? "" : "\"");
    }
    return PST_OK;
}

static enum pst_status import_all(struct pst_import *import,
                                  struct pst_scope *scope)
{
    const json_t *graph = json_object_get(import->module, "graph");
    const json_t *specs = json_object_get(signature(import), "input_specs");
    enum pst_status status;

    if (!json_is_array(specs) ||
        !json_is_array(json_object_get(signature(import), "output_specs")))
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "the model has no signature");
    status = read_modules(import);
    if (status == PST_OK)
        status = pst_import_scan(import);
    scope->graph = graph;
    scope->metas = json_object_get(graph, "tensor_values");
    if (status == PST_OK)
        status = read_inputs(import, scope, specs);
    if (status == PST_OK)
        status = pst_import_state(import, scope);
    if (status == PST_OK)
        status = check_inputs(import, scope, json_object_get(graph, "inputs"),
                              specs);
    if (status == PST_OK)
        status = pst_functionalise_new(&import->build, &import->functional,
                                       import->diag);
    if (status == PST_OK) {
        import->place = (struct pst_place){.module = "", .source = ""};
        status = pst_import_lay_out_inputs(import, scope);
    }
    if (status == PST_OK)
        status = pst_import_nodes(import, scope, graph);
    if (status == PST_OK)
        status = read_outputs(import, scope, graph);
    if (status == PST_OK)
        status = pst_functionalise_finish(import->functional, import->diag);
    if (status == PST_OK)
        status = check_updates(import);
    return status;
}

static enum pst_status import_once(struct pst_model *model, struct pst_zip *zip,
                                   const json_t *graph_module,
                                   struct pst_layouts *layouts,
                                   struct pst_diag *diag)
{
    struct pst_import import = {
        .layouts = layouts,
        .model = model,
        .zip = zip,
        .module = graph_module,
        .diag = diag,
        .place = {.module = "", .source = ""},
    };
    struct pst_scope scope = {.no_grad = false};
    enum pst_status status;

    status = pst_graph_new(&model->graph, diag);
    if (status != PST_OK)
        return status;
    pst_build_init(&import.build, model->graph, diag);
    pst_map_init(&import.fqns, PST_TAG_ARCHIVE);
    pst_map_init(&import.used, PST_TAG_ARCHIVE);
    pst_map_init(&import.numbers, PST_TAG_ARCHIVE);
    pst_map_init(&import.state, PST_TAG_ARCHIVE);
    pst_map_init(&import.shared, PST_TAG_ARCHIVE);
    pst_map_init(&scope.values, PST_TAG_ARCHIVE);
    pst_map_init(&scope.read, PST_TAG_ARCHIVE);
    pst_map_init(&scope.numbers, PST_TAG_ARCHIVE);
    status = import_all(&import, &scope);
    pst_functionalise_free(import.functional);
    pst_vec_fini(&import.notes);
    pst_map_fini(&scope.values);
    pst_map_fini(&scope.read);
    pst_map_fini(&scope.numbers);
    pst_map_fini(&import.shared);
    pst_map_fini(&import.state);
    pst_map_fini(&import.used);
    pst_map_fini(&import.numbers);
    pst_map_fini(&import.fqns);
    if (status != PST_OK)
        return status;
    pst_graph_dce(model->graph, false);
    return pst_graph_verify(model->graph, diag);
}

enum pst_status pst_import_graph(struct pst_model *model, struct pst_zip *zip,
                                 const json_t *graph_module,
                                 struct pst_diag *diag)
{
    const size_t n_modules = model->modules.n, n_ties = model->ties.n;
    const size_t n_notes = model->notes.n;
    struct pst_layouts layouts;
    enum pst_status status;

    pst_layouts_init(&layouts);
    for (;;) {
        status = import_once(model, zip, graph_module, &layouts, diag);
        if (!layouts.again || status == PST_ERR_NOMEM)
            break;
        layouts.again = false;
        pst_graph_free(model->graph);
        model->graph = NULL;
        model->modules.n = n_modules;
        model->ties.n = n_ties;
        model->notes.n = n_notes;
        pst_diag_init(diag);
    }
    pst_layouts_fini(&layouts);
    return status;
}
