// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/graph.h"

#include <string.h>

#define TAG PST_TAG_GRAPH

static bool add_root(struct pst_graph *graph)
{
    struct pst_module_call *root =
        pst_arena_alloc(&graph->arena, sizeof(*root));

    if (root == NULL)
        return false;
    root->path = root->name = root->identity = root->type = "";
    return pst_vec_push(TAG, &graph->calls, root);
}

enum pst_status pst_graph_new(struct pst_graph **ret, struct pst_diag *diag)
{
    struct pst_graph *graph = pst_calloc(TAG, 1, sizeof(*graph));

    if (graph == NULL)
        return pst_diag_nomem(diag, sizeof(*graph));
    pst_arena_init(&graph->arena, TAG);
    pst_map_init(&graph->names, TAG);
    pst_map_init(&graph->newest_calls, TAG);
    if (!add_root(graph)) {
        pst_graph_free(graph);
        return pst_diag_nomem(diag, sizeof(struct pst_module_call));
    }
    *ret = graph;
    return PST_OK;
}

void pst_graph_free(struct pst_graph *graph)
{
    if (graph == NULL)
        return;
    pst_vec_fini(&graph->values);
    pst_vec_fini(&graph->nodes);
    pst_vec_fini(&graph->inputs);
    pst_vec_fini(&graph->params);
    pst_vec_fini(&graph->buffers);
    pst_vec_fini(&graph->consts);
    pst_vec_fini(&graph->extras);
    pst_vec_fini(&graph->outputs);
    pst_vec_fini(&graph->calls);
    pst_map_fini(&graph->newest_calls);
    pst_map_fini(&graph->names);
    pst_arena_fini(&graph->arena);
    pst_free(graph);
}

/* --- names -------------------------------------------------------------- */

/* True if no value is named `out`, cut to `stem` bytes, with k appended. */
static bool is_unused_name(const struct pst_graph *graph, struct pst_str *out,
                           size_t stem, unsigned k)
{
    out->len = stem;
    pst_str_add_u64(out, k);
    return !out->failed && !pst_map_has(&graph->names, out->text);
}

/* Returns `name`; if it is taken, with a number appended. Doubling and
 * bisection find the number, so that thousands of values named "mul" stay
 * cheap. */
static char *unique_name(struct pst_graph *graph, const char *name)
{
    struct pst_str out = {0};
    unsigned taken = 0, free = 1;
    char *ret = NULL;
    size_t stem;

    if (!pst_map_has(&graph->names, name))
        return pst_arena_strdup(&graph->arena, name);
    pst_str_add(&out, name);
    pst_str_add(&out, "_");
    stem = out.len;
    while (!is_unused_name(graph, &out, stem, free) && !out.failed) {
        taken = free;
        free *= 2;
    }
    while (free - taken > 1 && !out.failed) {
        const unsigned mid = taken + (free - taken) / 2;

        if (is_unused_name(graph, &out, stem, mid))
            free = mid;
        else
            taken = mid;
    }
    out.len = stem;
    pst_str_add_u64(&out, free);
    if (!out.failed)
        ret = pst_arena_strdup(&graph->arena, out.text);
    pst_str_fini(&out);
    return ret;
}

struct pst_value *pst_graph_find(const struct pst_graph *graph,
                                 const char *name)
{
    struct pst_value *value = pst_map_get(&graph->names, name);

    return value == NULL || pst_value_is_dead(value) ? NULL : value;
}

/* --- values ------------------------------------------------------------- */

/* Appends the value to the list of its kind; results of nodes have none. */
static bool push_kind(struct pst_graph *graph, struct pst_value *value)
{
    switch (value->kind) {
    case PST_VALUE_INPUT:
        return pst_vec_push(TAG, &graph->inputs, value);
    case PST_VALUE_PARAM:
        return pst_vec_push(TAG, &graph->params, value);
    case PST_VALUE_BUFFER:
        return pst_vec_push(TAG, &graph->buffers, value);
    case PST_VALUE_CONST:
        return pst_vec_push(TAG, &graph->consts, value);
    case PST_VALUE_SEED:
    case PST_VALUE_GRAD:
        return pst_vec_push(TAG, &graph->extras, value);
    case PST_VALUE_NODE:
        break;
    }
    return true;
}

struct pst_value *pst_graph_add_value(struct pst_graph *graph,
                                      enum pst_value_kind kind,
                                      const char *name, const char *fqn,
                                      const struct pst_meta *meta)
{
    struct pst_value *value = pst_arena_alloc(&graph->arena, sizeof(*value));
    char *unique = value == NULL ? NULL : unique_name(graph, name);

    if (unique == NULL)
        return NULL;
    value->kind = kind;
    value->name = unique;
    value->meta = *meta;
    if (fqn != NULL) {
        value->fqn = pst_arena_strdup(&graph->arena, fqn);
        if (value->fqn == NULL)
            return NULL;
    }
    value->id = (unsigned)graph->values.n;
    if (!pst_vec_reserve(TAG, &graph->values, 1) ||
        !pst_map_put(&graph->names, unique, value) || !push_kind(graph, value))
        return NULL;
    return pst_vec_push(TAG, &graph->values, value) ? value : NULL;
}

enum pst_status pst_exprs_copy(struct pst_arena *arena,
                               const char *const *exprs, unsigned n,
                               const char *const **ret, struct pst_diag *diag)
{
    const char **copy = NULL;

    if (exprs != NULL)
        copy = pst_arena_calloc(arena, PST_MAX(n, 1u), sizeof(*copy));
    if (exprs != NULL && copy == NULL)
        return pst_diag_nomem(diag, n * sizeof(*copy));
    for (unsigned k = 0; exprs != NULL && k < n; k++) {
        if (exprs[k] == NULL)
            continue;
        copy[k] = pst_arena_strdup(arena, exprs[k]);
        if (copy[k] == NULL)
            return pst_diag_nomem(diag, strlen(exprs[k]));
    }
    *ret = copy;
    return PST_OK;
}

enum pst_status pst_arg_copy(struct pst_arena *arena, const struct pst_arg *arg,
                             struct pst_arg *ret, struct pst_diag *diag)
{
    struct pst_arg copy = *arg;
    const void *data = NULL;
    size_t size = 0;

    switch (arg->kind) {
    case PST_ARG_VALUES:
        size = sizeof(arg->values[0]);
        break;
    case PST_ARG_INTS:
        size = sizeof(arg->ints[0]);
        break;
    case PST_ARG_FLOATS:
        size = sizeof(arg->floats[0]);
        break;
    case PST_ARG_BOOLS:
        size = sizeof(arg->bools[0]);
        break;
    case PST_ARG_STRING:
        copy.s = pst_arena_strdup(arena, arg->s);
        if (copy.s == NULL)
            return pst_diag_nomem(diag, strlen(arg->s) + 1);
        break;
    default:
        break;
    }
    if (size > 0) {
        data = pst_arena_calloc(arena, PST_MAX(arg->n, 1u), size);
        if (data == NULL)
            return pst_diag_nomem(diag, arg->n * size);
        if (arg->n > 0)
            memcpy((void *)data, arg->ints, arg->n * size);
        copy.ints = data;
    }
    *ret = copy;
    return pst_exprs_copy(arena, arg->exprs, size > 0 ? arg->n : 1, &ret->exprs,
                          diag);
}

enum pst_status pst_graph_add_output(struct pst_graph *graph,
                                     const struct pst_output *output,
                                     struct pst_diag *diag)
{
    struct pst_output copy = *output;
    enum pst_status status =
        pst_arg_copy(&graph->arena, &output->arg, &copy.arg, diag);

    if (status != PST_OK)
        return status;
    copy.path = pst_arena_strdup(&graph->arena,
                                 output->path == NULL ? "" : output->path);
    if (copy.path == NULL || !pst_vec_push(TAG, &graph->outputs, copy))
        return pst_diag_nomem(diag, sizeof(copy));
    return PST_OK;
}

void pst_arg_uses(struct pst_arg *arg, unsigned i, pst_use_fn fn, void *ctx)
{
    if (arg->kind == PST_ARG_VALUE)
        fn(ctx, &arg->value, i);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (arg->values[k] != NULL)
            fn(ctx, &arg->values[k], i);
}

bool pst_node_is_empty(const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++)
        if (pst_meta_numel(&node->outs[k]->meta) > 0)
            return false;
    return node->n_outs > 0;
}
