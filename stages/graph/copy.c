// SPDX-License-Identifier: Apache-2.0
/* Deep copies of graphs. */
#include "stages/graph/calls.h"
#include "stages/graph/schema.h"

#include <string.h>

#define TAG PST_TAG_GRAPH

struct copier {
    const struct pst_graph *from;
    struct pst_graph *to;
    struct pst_diag *diag;
};

static struct pst_value *copy_of(struct copier *c,
                                 const struct pst_value *value)
{
    return value == NULL ? NULL : c->to->values.at[value->id];
}

static enum pst_status no_memory(struct copier *c)
{
    return pst_diag_nomem(c->diag, 0);
}

static enum pst_status copy_values(struct copier *c)
{
    if (!pst_vec_reserve(TAG, &c->to->values, c->from->values.n))
        return no_memory(c);
    for (size_t i = 0; i < c->from->values.n; i++) {
        const struct pst_value *old = c->from->values.at[i];
        struct pst_value *value =
            pst_arena_memdup(&c->to->arena, old, sizeof(*old));

        if (value == NULL)
            return no_memory(c);
        value->name = pst_arena_strdup(&c->to->arena, old->name);
        if (old->fqn != NULL)
            value->fqn = pst_arena_strdup(&c->to->arena, old->fqn);
        if (value->name == NULL || (old->fqn != NULL && value->fqn == NULL))
            return no_memory(c);
        if (pst_exprs_copy(&c->to->arena, old->dims, old->meta.rank,
                           &value->dims, c->diag) != PST_OK)
            return no_memory(c);
        value->def = NULL;
        value->aux = NULL;
        c->to->values.at[c->to->values.n++] = value;
        if (!pst_map_put(&c->to->names, value->name, value))
            return no_memory(c);
    }
    for (size_t i = 0; i < c->to->values.n; i++) {
        struct pst_value *value = c->to->values.at[i];

        value->base = copy_of(c, value->base);
        value->version_of = copy_of(c, value->version_of);
    }
    return PST_OK;
}

static enum pst_status copy_arg(struct copier *c, const struct pst_arg *from,
                                struct pst_arg *to)
{
    enum pst_status status = pst_arg_copy(&c->to->arena, from, to, c->diag);

    if (status != PST_OK)
        return status;
    if (to->kind == PST_ARG_VALUE)
        to->value = copy_of(c, to->value);
    for (unsigned k = 0; to->kind == PST_ARG_VALUES && k < to->n; k++)
        to->values[k] = copy_of(c, to->values[k]);
    return PST_OK;
}

static enum pst_status copy_node(struct copier *c, const struct pst_node *old)
{
    struct pst_arena *arena = &c->to->arena;
    const unsigned n_args = old->schema->n_args;
    struct pst_node *node = pst_arena_memdup(arena, old, sizeof(*old));

    if (node == NULL)
        return no_memory(c);
    node->call = c->to->calls.at[old->call->id];
    node->source = pst_arena_strdup(arena, old->source);
    node->origin = pst_arena_strdup(arena, old->origin);
    node->args =
        pst_arena_calloc(arena, PST_MAX(n_args, 1u), sizeof(*node->args));
    node->outs =
        pst_arena_calloc(arena, PST_MAX(old->n_outs, 1u), sizeof(*node->outs));
    if (node->source == NULL || node->origin == NULL || node->args == NULL ||
        node->outs == NULL)
        return no_memory(c);
    for (unsigned i = 0; i < n_args; i++) {
        enum pst_status status = copy_arg(c, &old->args[i], &node->args[i]);

        if (status != PST_OK)
            return status;
    }
    for (unsigned k = 0; k < old->n_outs; k++) {
        node->outs[k] = copy_of(c, old->outs[k]);
        node->outs[k]->def = node;
    }
    return pst_vec_push(TAG, &c->to->nodes, node) ? PST_OK : no_memory(c);
}

/* Copies calls in order, so that ids and parents stay valid. */
static enum pst_status copy_calls(struct copier *c)
{
    for (size_t i = 0; i < c->from->calls.n; i++) {
        struct pst_module_call *call;
        enum pst_status status =
            pst_graph_adopt_call(c->to, c->from->calls.at[i], &call, c->diag);

        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static void rebind_leaves(struct copier *c, struct pst_call_leaf *leaves,
                          unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (leaves[i].arg.kind == PST_ARG_VALUE)
            leaves[i].arg.value = copy_of(c, leaves[i].arg.value);
}

static enum pst_status copy_signatures(struct copier *c)
{
    for (size_t i = 0; i < c->from->calls.n; i++) {
        struct pst_module_call *call = c->to->calls.at[i];
        enum pst_status status;

        if (c->from->calls.at[i]->signature == NULL)
            continue;
        status = pst_graph_sign_call(c->to, call,
                                     c->from->calls.at[i]->signature, c->diag);
        if (status != PST_OK)
            return status;
        rebind_leaves(c, call->signature->inputs, call->signature->n_inputs);
        rebind_leaves(c, call->signature->outputs, call->signature->n_outputs);
    }
    return PST_OK;
}

#define COPY_LIST(list)                                                        \
    do {                                                                       \
        for (size_t i_ = 0; i_ < c->from->list.n; i_++)                        \
            if (!pst_vec_push(TAG, &c->to->list,                               \
                              copy_of(c, c->from->list.at[i_])))               \
                return no_memory(c);                                           \
    } while (0)

static enum pst_status copy_lists(struct copier *c)
{
    COPY_LIST(inputs);
    COPY_LIST(params);
    COPY_LIST(buffers);
    COPY_LIST(consts);
    COPY_LIST(extras);
    for (size_t i = 0; i < c->from->outputs.n; i++) {
        struct pst_output output = c->from->outputs.at[i];
        enum pst_status status = copy_arg(c, &output.arg, &output.arg);

        output.target = copy_of(c, output.target);
        if (status == PST_OK)
            status = pst_graph_add_output(c->to, &output, c->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

enum pst_status pst_graph_copy(const struct pst_graph *graph,
                               struct pst_graph **ret, struct pst_diag *diag)
{
    struct copier c = {.from = graph, .diag = diag};
    enum pst_status status = pst_graph_new(&c.to, diag);

    if (status != PST_OK)
        return status;
    c.to->next_node_id = graph->next_node_id;
    status = copy_calls(&c);
    if (status == PST_OK)
        status = copy_values(&c);
    for (size_t i = 0; status == PST_OK && i < graph->nodes.n; i++)
        status = copy_node(&c, graph->nodes.at[i]);
    if (status == PST_OK)
        status = copy_signatures(&c);
    if (status == PST_OK)
        status = copy_lists(&c);
    if (status != PST_OK) {
        pst_graph_free(c.to);
        return status;
    }
    *ret = c.to;
    return PST_OK;
}
