// SPDX-License-Identifier: Apache-2.0
/* Builds a graph from a document: inputs, nodes, outputs. */
#include "stages/frontend/import/nodes.h"

#include <stdio.h>
#include <string.h>

/* Lists the FQNs of all submodules. */
static enum pst_status read_modules(struct pst_import *import)
{
    const struct pst_document *doc = import->doc;
    struct pst_model *model = import->model;
    enum pst_status status = PST_OK;
    struct pst_map seen;

    pst_map_init(&seen, PST_TAG_ARCHIVE);
    for (size_t i = 0; i < doc->n_calls && status == PST_OK; i++) {
        const char *fqn = doc->calls[i].fqn;
        char *copy;

        if (fqn[0] == '\0' || pst_map_has(&seen, fqn))
            continue;
        copy = pst_arena_strdup(&model->arena, fqn);
        if (copy == NULL || !pst_map_put(&seen, fqn, copy) ||
            !pst_vec_push(PST_TAG_ARCHIVE, &model->modules, copy))
            status = pst_diag_nomem(import->diag, strlen(fqn));
    }
    pst_map_fini(&seen);
    return status;
}

/* Returns the root's calling convention; NULL if the file has none. */
static const struct pst_doc_call_signature *root_signature(
    const struct pst_import *import)
{
    return import->doc->n_calls > 0 ? import->doc->calls[0].signature : NULL;
}

static enum pst_status add_input(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_arg *arg,
                                 const char *path)
{
    const char *name = arg->name;
    struct pst_diag *diag = import->diag;
    struct pst_doc_meta t;
    struct pst_value *v;
    enum pst_status status;

    if (arg->kind != PST_DOC_TENSOR)
        return pst_diag_set(diag, PST_E_MODEL_INPUT_KIND,
                            "input \"%s\" of the model is not a tensor: free "
                            "integers and objects are not supported",
                            path != NULL ? path : "?");
    status = pst_import_meta(import, scope, name, &t);
    if (status != PST_OK)
        return status;
    if (pst_map_has(&scope->values, name))
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT,
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

/* Returns the paths of the leaves of the model's arguments; no paths if the
 * file does not have exactly n. */
static enum pst_status name_arguments(struct pst_import *import, size_t n,
                                      struct pst_paths *ret)
{
    const struct pst_doc_call_signature *root = root_signature(import);
    enum pst_status status;

    *ret = (struct pst_paths){0};
    if (root == NULL || root->in_tree == NULL)
        return PST_OK;
    status =
        pst_pytree_arguments(root->in_tree, root->arg_names, root->n_arg_names,
                             &import->model->arena, ret, import->diag);
    if (root->arg_names == NULL || n != ret->n)
        ret->n = 0; /* inputs are named by placeholders instead */
    return status;
}

static bool is_leaf(const struct pst_doc_spec *spec)
{
    return spec->kind == PST_DOC_SPEC_USER_INPUT ||
           spec->kind == PST_DOC_SPEC_CONSTANT_INPUT;
}

/* Appends to the model's arguments the newest input or, for a literal, the
 * spec's value. */
static enum pst_status add_argument(struct pst_import *import,
                                    const struct pst_doc_spec *spec,
                                    const char *path, size_t leaf)
{
    const struct pst_graph *graph = import->build.graph;
    struct pst_model *model = import->model;
    struct pst_call_leaf argument = {.path = path};
    struct pst_arg arg = spec->kind == PST_DOC_SPEC_USER_INPUT
                             ? pst_v(graph->inputs.at[graph->inputs.n - 1])
                             : pst_import_literal(&spec->arg);
    enum pst_status status =
        pst_arg_copy(&model->arena, &arg, &argument.arg, import->diag);

    if (status != PST_OK)
        return status;
    if (path == NULL)
        argument.path = pst_arena_printf(&model->arena, "%zu", leaf);
    return argument.path != NULL &&
                   pst_vec_push(PST_TAG_ARCHIVE, &model->arguments, argument)
               ? PST_OK
               : pst_diag_nomem(import->diag, sizeof(argument));
}

/* Reads user inputs in order, named like the model's arguments; input specs
 * correspond to leaves of the arguments. */
static enum pst_status read_inputs(struct pst_import *import,
                                   struct pst_scope *scope)
{
    const struct pst_document *doc = import->doc;
    struct pst_paths paths;
    size_t leaf = 0, n = 0;
    enum pst_status status;

    for (size_t i = 0; i < doc->n_inputs; i++)
        n += is_leaf(&doc->inputs[i]);
    status = name_arguments(import, n, &paths);
    for (size_t i = 0; i < doc->n_inputs && status == PST_OK; i++) {
        const struct pst_doc_spec *spec = &doc->inputs[i];
        const char *path = leaf < paths.n ? paths.at[leaf] : NULL;

        if (spec->kind == PST_DOC_SPEC_USER_INPUT)
            status = add_input(import, scope, &spec->arg, path);
        else if (spec->kind == PST_DOC_SPEC_CUSTOM_OBJECT)
            status = pst_diag_set(import->diag, PST_E_MODEL_INPUT_KIND,
                                  "inputs of the kind \"%s\" are not supported",
                                  spec->tag);
        if (is_leaf(spec) && status == PST_OK)
            status = add_argument(import, spec, path, leaf++);
    }
    return status;
}

/* Checks that the graph's inputs and the specs have the same names. */
static enum pst_status check_inputs(struct pst_import *import,
                                    const struct pst_scope *scope)
{
    const struct pst_document *doc = import->doc;
    const struct pst_doc_graph *graph = doc->graph;

    if (graph->n_inputs != doc->n_inputs)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "the graph has %u inputs, its signature %zu",
                            graph->n_inputs, doc->n_inputs);
    for (unsigned i = 0; i < graph->n_inputs; i++) {
        const struct pst_doc_arg *input = &graph->inputs[i];

        /* A token only orders effects; it has no value. */
        if (doc->inputs[i].kind == PST_DOC_SPEC_TOKEN ||
            input->kind != PST_DOC_TENSOR)
            continue;
        if (!pst_map_has(&scope->values, input->name))
            return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                                "input \"%s\" of the graph is not in its "
                                "signature",
                                input->name);
    }
    return PST_OK;
}

static bool is_window(const struct pst_import *import,
                      const struct pst_value *value)
{
    for (size_t i = 0; i < import->windows.n; i++)
        if (import->windows.at[i].view == value)
            return true;
    return false;
}

static enum pst_status add_update(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_spec *spec)
{
    const bool buffer = spec->kind == PST_DOC_SPEC_BUFFER_MUTATION;
    const char *name = spec->target, *tag = spec->tag;
    struct pst_output out = {.kind = buffer ? PST_OUTPUT_BUFFER_UPDATE
                                            : PST_OUTPUT_INPUT_UPDATE};
    struct pst_value *window = NULL;
    enum pst_status status;

    out.target = pst_map_get(buffer ? &import->state : &scope->values, name);
    if (out.target != NULL)
        out.target = pst_functionalise_original(import->functional, out.target);
    /* A window updates its base, so that other names of these bytes see the new
     * content. */
    if (out.target != NULL && buffer && is_window(import, out.target)) {
        window = out.target;
        out.target = pst_value_storage(window);
    }
    if (out.target == NULL ||
        (out.target->kind != PST_VALUE_BUFFER && buffer) ||
        (out.target->kind != PST_VALUE_INPUT && !buffer))
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "%s of \"%s\", which is none", tag, name);
    status = pst_import_value(import, scope, &spec->arg, tag, &out.arg);
    if (status != PST_OK || out.arg.value == out.target)
        return status;
    if (window != NULL)
        return pst_functionalise_write(import->functional, window,
                                       out.arg.value) != NULL
                   ? PST_OK
                   : import->build.status;
    if (!pst_meta_same(&out.arg.value->meta, &out.target->meta))
        return pst_diag_set(import->diag, PST_E_PT2_STORED_SHAPE,
                            "%s of \"%s\" has another shape or dtype", tag,
                            name);
    out.path = out.target->name;
    return pst_graph_add_output(import->build.graph, &out, import->diag);
}

static enum pst_status add_result(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_arg *arg,
                                  const struct pst_paths *paths, size_t leaf)
{
    struct pst_output out = {.kind = PST_OUTPUT_USER};
    enum pst_status status;
    char where[32];

    snprintf(where, sizeof(where), "output %zu", leaf);
    status = pst_import_value(import, scope, arg, where, &out.arg);
    if (status != PST_OK)
        return status;
    out.path = leaf < paths->n
                   ? paths->at[leaf]
                   : pst_arena_printf(&import->build.graph->arena, "%zu", leaf);
    if (out.path == NULL)
        return pst_diag_nomem(import->diag, 0);
    return pst_graph_add_output(import->build.graph, &out, import->diag);
}

static enum pst_status read_output(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_spec *spec,
                                   const struct pst_paths *paths, size_t *leaf)
{
    switch (spec->kind) {
    case PST_DOC_SPEC_TOKEN:
        return PST_OK;
    case PST_DOC_SPEC_BUFFER_MUTATION:
    case PST_DOC_SPEC_INPUT_MUTATION:
        return add_update(import, scope, spec);
    case PST_DOC_SPEC_PARAMETER_MUTATION:
        return pst_diag_set(import->diag, PST_E_MODEL_WRITES_PARAMETER,
                            "the model writes its parameter \"%s\", which is "
                            "not supported yet",
                            spec->target);
    case PST_DOC_SPEC_USER_OUTPUT:
        return add_result(import, scope, &spec->arg, paths, (*leaf)++);
    default:
        return pst_diag_set(
            import->diag, PST_E_MODEL_OUTPUT_KIND,
            "outputs of the kind \"%s\" are not supported: gradients are "
            "derived here, export the model's forward",
            spec->tag);
    }
}

static enum pst_status read_outputs(struct pst_import *import,
                                    struct pst_scope *scope)
{
    const struct pst_doc_call_signature *root = root_signature(import);
    const struct pst_document *doc = import->doc;
    enum pst_status status = PST_OK;
    struct pst_paths paths = {0};
    size_t leaf = 0;

    if (doc->graph->n_outputs != doc->n_outputs)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "the graph has %u outputs, its signature %zu",
                            doc->graph->n_outputs, doc->n_outputs);
    status = pst_import_set_place(import, &pst_doc_nowhere);
    if (status != PST_OK)
        return status;
    import->build.no_grad = false;
    import->build.region = NULL;
    if (root != NULL && root->out_tree != NULL)
        status = pst_pytree_results(root->out_tree, &import->model->arena,
                                    &paths, import->diag);
    for (size_t i = 0; i < doc->n_outputs && status == PST_OK; i++)
        status = read_output(import, scope, &doc->outputs[i], &paths, &leaf);
    return status;
}

/* Rejects updates of a tensor that shares memory with another one, or whose
 * elements do, but is a separate copy here. */
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
                import->diag, PST_E_MODEL_SHARED_MEMORY,
                "the model writes \"%s\", which shares memory "
                "with %s%s%s: not supported yet",
                out->target->fqn,
                strcmp(other, out->target->fqn) == 0 ? "itself" : "\"",
                strcmp(other, out->target->fqn) == 0 ? "" : other,
                strcmp(other, out->target->fqn) == 0 ? "" : "\"");
    }
    return PST_OK;
}

/* --- importing the graph ------------------------------------------------ */

static void drop_names(struct pst_import *import)
{
    pst_functionalise_free(import->functional);
    import->functional = NULL;
    pst_vec_fini(&import->notes);
    pst_vec_fini(&import->strides);
    pst_map_fini(&import->outer.values);
    pst_map_fini(&import->outer.read);
    pst_map_fini(&import->outer.numbers);
    pst_map_fini(&import->outer.lanes);
    pst_map_fini(&import->shared);
    pst_map_fini(&import->state);
}

void pst_import_init(struct pst_import *import, struct pst_model *model,
                     struct pst_zip *zip, const struct pst_document *doc,
                     struct pst_diag *diag)
{
    *import = (struct pst_import){.model = model,
                                  .zip = zip,
                                  .doc = doc,
                                  .diag = diag,
                                  .place = &pst_doc_nowhere};
    pst_layouts_init(&import->layouts);
    pst_map_init(&import->used, PST_TAG_ARCHIVE);
    pst_map_init(&import->numbers, PST_TAG_ARCHIVE);
}

void pst_import_fini(struct pst_import *import)
{
    drop_names(import);
    pst_vec_fini(&import->windows);
    pst_vec_fini(&import->mirrors);
    pst_vec_fini(&import->lost);
    pst_map_fini(&import->used);
    pst_map_fini(&import->numbers);
    pst_layouts_fini(&import->layouts);
}

/* Resets the import to the state before the inputs. */
static void reset_import(struct pst_import *import)
{
    struct pst_model *model = import->model;

    drop_names(import);
    pst_map_init(&import->state, PST_TAG_ARCHIVE);
    pst_map_init(&import->shared, PST_TAG_ARCHIVE);
    import->outer = (struct pst_scope){.graph = import->doc->graph};
    if (model->autocast != NULL) {
        (void)pst_dtype_from_name(model->autocast, &import->outer.low);
        import->outer.autocast =
            import->outer.low == PST_F16 ? PST_AUTOCAST_CPU : PST_AUTOCAST_CUDA;
    }
    model->n_casts = 0;
    pst_map_init(&import->outer.values, PST_TAG_ARCHIVE);
    pst_map_init(&import->outer.read, PST_TAG_ARCHIVE);
    pst_map_init(&import->outer.numbers, PST_TAG_ARCHIVE);
    pst_map_init(&import->outer.lanes, PST_TAG_ARCHIVE);
    pst_graph_free(model->graph);
    model->graph = NULL;
    model->modules.n = import->n_modules;
    model->ties.n = import->n_ties;
    model->storages.n = 0;
    model->arguments.n = 0;
    import->n_regions = 0;
    import->windows.n = 0;
    import->mirrors.n = 0;
    import->lost.n = 0;
    model->notes.n = import->n_notes;
}

static enum pst_status import_inputs(struct pst_import *import)
{
    struct pst_scope *scope = &import->outer;
    enum pst_status status;

    reset_import(import);
    status = read_modules(import);
    if (status == PST_OK)
        status = pst_graph_new(&import->model->graph, import->diag);
    if (status != PST_OK)
        return status;
    pst_build_init(&import->build, import->model->graph, import->diag);
    import->sizes = (struct pst_sizes){&import->model->symbols, NULL};
    import->build.sizes = &import->sizes;
    status = read_inputs(import, scope);
    if (status == PST_OK)
        status = pst_import_state(import, scope);
    if (status == PST_OK)
        status = check_inputs(import, scope);
    return status;
}

enum pst_status pst_import_inputs(struct pst_import *import)
{
    import->n_modules = import->model->modules.n;
    import->n_ties = import->model->ties.n;
    import->n_notes = import->model->notes.n;
    return import_inputs(import);
}

static enum pst_status import_nodes(struct pst_import *import)
{
    enum pst_status status = pst_functionalise_new(
        &import->build, &import->functional, import->diag);

    import->place = &pst_doc_nowhere;
    import->stack = NULL;
    import->cut = NULL;
    if (status == PST_OK)
        status = pst_import_reorder_inputs(import, &import->outer);
    if (status == PST_OK)
        status = pst_import_nodes(import, &import->outer);
    return status;
}

enum pst_status pst_import_body(struct pst_import *import)
{
    enum pst_status status = import_nodes(import);

    while (import->layouts.again && status != PST_ERR_NOMEM) {
        import->layouts.again = false;
        pst_diag_init(import->diag);
        status = import_inputs(import);
        if (status == PST_OK)
            status = import_nodes(import);
    }
    return status == PST_OK ? pst_import_assign_calls(import) : status;
}

/* Checks that no write without gradient destroyed content that a gradient of an
 * output needs; any output may be the loss. */
static enum pst_status check_silent(struct pst_import *import)
{
    const struct pst_graph *graph = import->build.graph;
    struct pst_value **roots =
        pst_calloc(PST_TAG_ARCHIVE, graph->outputs.n + 1, sizeof(*roots));
    enum pst_status status;
    size_t n = 0;

    if (roots == NULL)
        return pst_diag_nomem(import->diag, graph->outputs.n);
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_USER &&
            graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            roots[n++] = graph->outputs.at[i].arg.value;
    status = pst_functionalise_check_silent(import->functional, roots, n,
                                            import->diag);
    pst_free(roots);
    return status;
}

enum pst_status pst_import_results(struct pst_import *import)
{
    enum pst_status status = pst_import_signatures(import, &import->outer);

    if (status == PST_OK)
        status = read_outputs(import, &import->outer);
    if (status == PST_OK)
        status = pst_functionalise_finish(import->functional, import->diag);
    if (status == PST_OK)
        status = check_silent(import);
    import->model->writes = pst_functionalise_has_written(import->functional);
    if (status == PST_OK)
        status = check_updates(import);
    if (status == PST_OK)
        pst_import_sink_windows(import);
    return status;
}
