// SPDX-License-Identifier: Apache-2.0
/* Builds the graph's tree of module calls from the stacks of nodes and the
 * signatures that the export kept. */
#include "stages/graph/calls.h"
#include "stages/frontend/import/nodes.h"

#include <string.h>

/* --- stacks ------------------------------------------------------------- */

/* Returns the module's identity: its key without "@INDEX", which the keys of
 * later calls have. */
static char *identity_of(struct pst_arena *arena,
                         const struct pst_doc_frame *frame)
{
    const char *at = frame->call > 0 ? strrchr(frame->key, '@') : NULL;

    return pst_arena_strndup(arena, frame->key,
                             at != NULL ? (size_t)(at - frame->key)
                                        : strlen(frame->key));
}

const char *pst_import_user_path(const char *path)
{
    static const char wrapper[] = "_export_root";
    const size_t n = sizeof(wrapper) - 1;

    if (strncmp(path, wrapper, n) != 0 || (path[n] != '.' && path[n] != '\0'))
        return path;
    return path + n + (path[n] == '.');
}

enum pst_status pst_import_set_place(struct pst_import *import,
                                     const struct pst_doc_place *place)
{
    const struct pst_doc_stack *stack = place->stack;
    struct pst_graph *graph = import->build.graph;
    struct pst_module_call *call = graph->calls.at[0];
    enum pst_status status = PST_OK;

    import->build.source = place->source;
    if (stack == import->stack && stack != NULL)
        return PST_OK;
    if (stack != NULL && stack->n_nested < stack->n && import->cut == NULL)
        import->cut = place;
    for (unsigned i = 0; stack != NULL && i < stack->n_nested; i++) {
        const struct pst_doc_frame *f = &stack->frames[i];
        const char *path = import->build.region != NULL
                               ? pst_import_user_path(f->path)
                               : f->path;
        struct pst_module_call like = {.parent = call,
                                       .path = path,
                                       .index = path[0] ? f->call : 0,
                                       .type = f->type};

        /* An existing call that has an identity stays as it is. */
        call = pst_graph_find_call(graph, like.path, like.index);
        if (call != NULL && call->identity[0] != '\0')
            continue;
        like.identity = identity_of(&graph->arena, f);
        if (like.identity == NULL)
            return pst_diag_nomem(import->diag, 0);
        status = pst_graph_add_call(graph, &like, &call, import->diag);
        if (status != PST_OK)
            return status;
    }
    import->stack = stack;
    import->build.call = call;
    return PST_OK;
}

static bool is_inside(const struct pst_module_call *call,
                      const struct pst_module_call *outer)
{
    while (call != NULL && call->depth > outer->depth)
        call = call->parent;
    return call == outer;
}

/* Adds a note on the first module that calls a module outside itself. */
static enum pst_status note_cut(struct pst_import *import)
{
    struct pst_model *model = import->model;
    const struct pst_doc_place *place = import->cut;
    char *note;

    if (place == NULL)
        return PST_OK;
    note = pst_arena_printf(
        &model->arena,
        "%s%smodule \"%s\" calls \"%s\", which does not stand below it: what "
        "it computes there counts as its own (there may be more such calls)",
        place->source, place->source[0] != '\0' ? ": " : "", place->module,
        place->stack->frames[place->stack->n_nested].path);
    if (note == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &model->notes, note))
        return pst_diag_nomem(import->diag, 0);
    return PST_OK;
}

enum pst_status pst_import_assign_calls(struct pst_import *import)
{
    struct pst_graph *graph = import->build.graph;
    const struct pst_module_call *at = graph->calls.at[0];
    size_t *end = pst_calloc(PST_TAG_ARCHIVE, graph->calls.n, sizeof(*end));

    if (end == NULL)
        return pst_diag_nomem(import->diag, graph->calls.n * sizeof(*end));
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (const struct pst_module_call *call = graph->nodes.at[i]->call;
             call != NULL; call = call->parent)
            end[call->id] = i;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        while (at->parent != NULL &&
               (end[at->id] < i || !is_inside(at, node->call)))
            at = at->parent;
        if (is_inside(at, node->call))
            node->call = at;
        else
            at = node->call;
    }
    pst_free(end);
    return note_cut(import);
}

/* --- signatures --------------------------------------------------------- */

struct pst_arg pst_import_literal(const struct pst_doc_arg *arg)
{
    switch (arg->kind) {
    case PST_DOC_NONE:
        return pst_none();
    case PST_DOC_INT:
    case PST_DOC_FLOAT:
    case PST_DOC_BOOL:
        if (arg->number.kind == PST_DOC_NUMBER_INT)
            return pst_i(arg->number.i);
        if (arg->number.kind == PST_DOC_NUMBER_FLOAT)
            return pst_f(arg->number.f);
        if (arg->number.kind == PST_DOC_NUMBER_BOOL)
            return pst_b(arg->number.b);
        break;
    case PST_DOC_STRING:
        return pst_text(arg->name);
    default:
        break;
    }
    return (struct pst_arg){.kind = PST_ARG_IGNORED};
}

/* Converts a leaf of a signature to a value or literal; a value that is not
 * computed is IGNORED. */
static struct pst_arg leaf_of(const struct pst_scope *scope,
                              const struct pst_doc_arg *arg)
{
    if (arg->kind == PST_DOC_TENSOR)
        return pst_import_find(scope, arg->name) != NULL
                   ? pst_v(pst_import_find(scope, arg->name))
                   : (struct pst_arg){.kind = PST_ARG_IGNORED};
    return pst_import_literal(arg);
}

static enum pst_status read_leaves(struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const struct pst_doc_arg *args, unsigned n,
                                   const struct pst_paths *paths,
                                   const char *fqn, struct pst_call_leaf **ret)
{
    struct pst_call_leaf *leaves;

    if (paths->n != n)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "the signature of module \"%s\" has %u values, its "
                            "treespec %zu",
                            fqn, n, paths->n);
    leaves = pst_arena_calloc(&import->build.graph->arena, PST_MAX(n, 1u),
                              sizeof(*leaves));
    if (leaves == NULL)
        return pst_diag_nomem(import->diag, n * sizeof(*leaves));
    for (unsigned i = 0; i < n; i++) {
        leaves[i].path = paths->at[i];
        leaves[i].arg = leaf_of(scope, &args[i]);
    }
    *ret = leaves;
    return PST_OK;
}

/* Returns the parent of a call without nodes: call 0 of the innermost enclosing
 * module that has a call 0, else the root. */
static const struct pst_module_call *parent_of(const struct pst_graph *graph,
                                               const char *path)
{
    const struct pst_module_call *ret = graph->calls.at[0];
    struct pst_str outer = {0};

    pst_str_add(&outer, path);
    while (!outer.failed && ret == graph->calls.at[0]) {
        char *dot = strrchr(outer.text, '.');
        const struct pst_module_call *call;

        if (dot == NULL)
            break;
        *dot = '\0';
        call = pst_graph_find_call(graph, outer.text, 0);
        if (call != NULL)
            ret = call;
    }
    pst_str_fini(&outer);
    return ret;
}

/* Replaces the values of leaves by those that their tensors had before node
 * number `node`, as the program may write them. False if one is unknown. */
static bool replace_leaves(struct pst_import *import,
                           struct pst_call_leaf *leaves, unsigned n,
                           size_t node)
{
    for (unsigned i = 0; i < n; i++) {
        struct pst_arg *arg = &leaves[i].arg;

        if (arg->kind != PST_ARG_VALUE)
            continue;
        arg->value =
            pst_functionalise_before(import->functional, arg->value, node);
        if (arg->value == NULL)
            return false;
    }
    return true;
}

/* Calls replace_leaves() for a call's signature: inputs as before the call's
 * first node, results as after its last. A call without nodes gets the final
 * values. */
static bool replace_signature_leaves(struct pst_import *import,
                                     const struct pst_module_call *call,
                                     struct pst_call_signature *signature)
{
    const struct pst_graph *graph = import->build.graph;
    size_t first = graph->nodes.n, end = graph->nodes.n;

    for (size_t i = graph->nodes.n; i-- > 0;) {
        if (!is_inside(graph->nodes.at[i]->call, call))
            continue;
        end = first == graph->nodes.n ? i + 1 : end;
        first = i;
    }
    return replace_leaves(import, signature->inputs, signature->n_inputs,
                          first) &&
           replace_leaves(import, signature->outputs, signature->n_outputs,
                          end);
}

static enum pst_status add_signature(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const struct pst_doc_call *call)
{
    const struct pst_doc_call_signature *from = call->signature;
    struct pst_graph *graph = import->build.graph;
    struct pst_call_signature to = {.n_inputs = from->n_inputs,
                                    .n_outputs = from->n_outputs};
    const struct pst_module_call like = {.parent = parent_of(graph, call->fqn),
                                         .path = call->fqn,
                                         .index = call->index,
                                         .identity = "",
                                         .type = ""};
    struct pst_module_call *found;
    struct pst_paths paths;
    enum pst_status status;

    /* Without leaves, the module was called by another of its names, in a
     * sub-graph where the exporter lost the call, or never. */
    if (from->n_inputs == 0 && from->n_outputs == 0)
        return PST_OK;
    status =
        pst_pytree_arguments(from->in_tree, from->arg_names, from->n_arg_names,
                             &graph->arena, &paths, import->diag);
    if (status == PST_OK)
        status = read_leaves(import, scope, from->inputs, from->n_inputs,
                             &paths, call->fqn, &to.inputs);
    if (status == PST_OK)
        status = pst_pytree_results(from->out_tree, &graph->arena, &paths,
                                    import->diag);
    if (status == PST_OK)
        status = read_leaves(import, scope, from->outputs, from->n_outputs,
                             &paths, call->fqn, &to.outputs);
    if (status == PST_OK)
        status = pst_graph_add_call(graph, &like, &found, import->diag);
    if (status == PST_OK && found->signature != NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "call %u of module \"%s\" has two signatures",
                            call->index, call->fqn);
    if (status == PST_OK && replace_signature_leaves(import, found, &to))
        status = pst_graph_sign_call(graph, found, &to, import->diag);
    return status != PST_OK ? status : import->build.status;
}

enum pst_status pst_import_signatures(struct pst_import *import,
                                      const struct pst_scope *scope)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < import->doc->n_calls && status == PST_OK; i++) {
        const struct pst_doc_call *call = &import->doc->calls[i];

        if (call->fqn[0] != '\0' && call->signature != NULL &&
            call->signature->in_tree != NULL &&
            call->signature->out_tree != NULL)
            status = add_signature(import, scope, call);
    }
    return status;
}
