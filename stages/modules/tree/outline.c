// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/tree/outline.h"

#include "stages/graph/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_PLAN

struct outliner {
    struct pst_outline *outline;
    const struct pst_graph *graph;
    /* by value id: innermost call that contains the node and all uses */
    const struct pst_module_call **reach;
    struct pst_map taken; /* keys "CALL VALUE": inputs of calls */
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct outliner *d)
{
    return pst_diag_nomem(d->diag, 0);
}

/* --- values --------------------------------------------------------------- */

static bool is_below(const char *name, const char *path)
{
    const size_t n = strlen(path);

    return n == 0 || (strncmp(name, path, n) == 0 && name[n] == '.');
}

const char *pst_outline_attribute(const struct pst_outline *outline,
                                  const struct pst_value *value,
                                  const struct pst_module_call *call)
{
    const struct pst_tie *tie;
    const char *ret = NULL;

    if (!pst_value_is_state(value))
        return NULL;
    tie = pst_map_get(&outline->names, value->fqn);
    if (is_below(value->fqn, call->path))
        ret = value->fqn;
    for (unsigned i = 0; tie != NULL && i < tie->n_aliases; i++)
        if (is_below(tie->aliases[i], call->path) &&
            (ret == NULL || strcmp(tie->aliases[i], ret) < 0))
            ret = tie->aliases[i];
    if (ret != NULL && call->path[0] != '\0')
        ret += strlen(call->path) + 1;
    return ret;
}

static const struct pst_module_call *call_of(const struct outliner *d,
                                             const struct pst_value *value)
{
    return value->def != NULL ? value->def->call : d->graph->calls.at[0];
}

/* --- inputs and results of calls ------------------------------------------ */

struct use_ctx {
    struct outliner *d;
    const struct pst_node *node;
    bool failed;
};

static void update_reach(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *u = ctx;
    const struct pst_value *v = *slot;

    (void)arg;
    if (v->version_of == NULL)
        u->d->reach[v->id] = pst_common_call(u->d->reach[v->id], u->node->call);
}

/* Adds the value as an input of each call that contains the use, innermost
 * first. Stops at a call that also contains the value's definition or has the
 * value as an attribute. */
static void add_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *u = ctx;
    struct outliner *d = u->d;
    const struct pst_value *v = pst_outline_source(*slot);
    const struct pst_module_call *call = u->node->call;
    const struct pst_module_call *end = pst_common_call(call, call_of(d, v));

    (void)arg;
    for (; call != end && pst_outline_attribute(d->outline, v, call) == NULL;
         call = call->parent) {
        char key[32];

        snprintf(key, sizeof(key), "%u %u", call->id, v->id);
        if (pst_map_has(&d->taken, key))
            continue;
        if (!pst_map_put(&d->taken, key, d) ||
            !pst_vec_push(TAG, &d->outline->frames[call->id].inputs, v))
            u->failed = true;
    }
}

static enum pst_status add_results(struct outliner *d,
                                   const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *v = node->outs[k];
        const struct pst_module_call *call = node->call;

        for (; v->version_of == NULL && call != d->reach[v->id];
             call = call->parent)
            if (!pst_vec_push(TAG, &d->outline->frames[call->id].outs, v))
                return no_memory(d);
    }
    return PST_OK;
}

/* Adds a call, and calls that contain it, as items of their callers when they
 * are first entered. */
static enum pst_status enter_call(struct outliner *d,
                                  const struct pst_module_call *call)
{
    const struct pst_module_call *path[PST_MAX_CALL_DEPTH + 1];
    unsigned n = 0;

    for (; call->parent != NULL && !d->outline->frames[call->id].entered;
         call = call->parent)
        path[n++] = call;
    while (n-- > 0) {
        const struct pst_outline_item item = {NULL, path[n]->id};

        d->outline->frames[path[n]->id].entered = true;
        if (!pst_vec_push(TAG, &d->outline->frames[path[n]->parent->id].items,
                          item) ||
            !pst_vec_push(TAG, &d->outline->order, path[n]->id))
            return no_memory(d);
    }
    return PST_OK;
}

static enum pst_status visit_node(struct outliner *d, struct pst_node *node)
{
    const struct pst_outline_item item = {node, 0};
    struct use_ctx u = {d, node, false};
    enum pst_status status = enter_call(d, node->call);

    if (status == PST_OK &&
        !pst_vec_push(TAG, &d->outline->frames[node->call->id].items, item))
        status = no_memory(d);
    pst_node_uses(node, add_use, &u);
    if (status == PST_OK)
        status = u.failed ? no_memory(d) : add_results(d, node);
    return status;
}

static enum pst_status visit_all(struct outliner *d)
{
    const struct pst_graph *graph = d->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->values.n; i++)
        d->reach[i] = call_of(d, graph->values.at[i]);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct use_ctx u = {d, graph->nodes.at[i], false};

        pst_node_uses(graph->nodes.at[i], update_reach, &u);
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_arg *arg = &graph->outputs.at[i].arg;

        if (arg->kind == PST_ARG_VALUE && arg->value->version_of == NULL)
            d->reach[arg->value->id] = graph->calls.at[0];
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++)
        status = visit_node(d, graph->nodes.at[i]);
    return status;
}

static enum pst_status fill_outline(struct outliner *d,
                                    const struct pst_tie *ties, size_t n)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < n && status == PST_OK; i++)
        if (!pst_map_put(&d->outline->names, ties[i].fqn, (void *)&ties[i]))
            status = no_memory(d);
    return status == PST_OK ? visit_all(d) : status;
}

enum pst_status pst_outline_init(struct pst_outline *outline,
                                 const struct pst_graph *graph,
                                 const struct pst_tie *ties, size_t n_ties,
                                 struct pst_diag *diag)
{
    struct outliner d = {.outline = outline, .graph = graph, .diag = diag};
    enum pst_status status;

    outline->graph = graph;
    pst_map_init(&outline->names, TAG);
    pst_map_init(&d.taken, TAG);
    outline->frames = pst_calloc(TAG, graph->calls.n, sizeof(*outline->frames));
    d.reach = pst_calloc(TAG, graph->values.n + 1, sizeof(*d.reach));
    status = outline->frames != NULL && d.reach != NULL
                 ? fill_outline(&d, ties, n_ties)
                 : no_memory(&d);
    pst_free(d.reach);
    pst_map_fini(&d.taken);
    if (status != PST_OK)
        pst_outline_fini(outline);
    return status;
}

void pst_outline_fini(struct pst_outline *outline)
{
    for (size_t i = 0; outline->frames != NULL && i < outline->graph->calls.n;
         i++) {
        pst_vec_fini(&outline->frames[i].items);
        pst_vec_fini(&outline->frames[i].inputs);
        pst_vec_fini(&outline->frames[i].outs);
    }
    pst_free(outline->frames);
    pst_vec_fini(&outline->order);
    pst_map_fini(&outline->names);
    outline->frames = NULL;
}
