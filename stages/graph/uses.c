// SPDX-License-Identifier: Apache-2.0
/* Uses of values, and dead code elimination. */
#include "stages/graph/calls.h"

#include <string.h>

#include "stages/graph/oprow.h"

const char *pst_node_origin(const struct pst_node *node)
{
    return node->origin[0] != '\0' ? node->origin : node->schema->name;
}

void pst_node_uses(struct pst_node *node, pst_use_fn fn, void *ctx)
{
    for (unsigned i = 0; i < node->schema->n_args; i++)
        pst_arg_uses(&node->args[i], i, fn, ctx);
}

static char live_mark;

static void mark_live(void *ctx, struct pst_value **slot, unsigned arg)
{
    (void)ctx;
    (void)arg;
    (*slot)->aux = &live_mark;
}

static bool node_is_live(const struct pst_node *node, bool drop_idle)
{
    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k]->aux == &live_mark)
            return true;
    return drop_idle ? pst_op_runs_for_effect(node->op)
                     : pst_op_has_effect(node->op);
}

void pst_graph_dce(struct pst_graph *graph, bool drop_idle)
{
    size_t kept = graph->nodes.n;

    for (size_t i = 0; i < graph->values.n; i++)
        graph->values.at[i]->aux = NULL;
    for (size_t i = 0; i < graph->outputs.n; i++)
        pst_arg_uses(&graph->outputs.at[i].arg, 0, mark_live, NULL);
    /* Moves the kept nodes to the end of the array. */
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];

        if (node_is_live(node, drop_idle)) {
            pst_node_uses(node, mark_live, NULL);
            graph->nodes.at[--kept] = node;
            continue;
        }
        for (unsigned k = 0; k < node->n_outs; k++)
            node->outs[k]->def = NULL;
    }
    graph->nodes.n -= kept;
    if (kept > 0)
        memmove(graph->nodes.at, graph->nodes.at + kept,
                graph->nodes.n * sizeof(graph->nodes.at[0]));
    for (size_t i = 0; i < graph->values.n; i++)
        graph->values.at[i]->aux = NULL;
    pst_graph_trim_signatures(graph);
}

static bool has_free_size(const struct pst_value *value)
{
    for (unsigned d = 0; value->dims != NULL && d < value->meta.rank; d++)
        if (value->dims[d] != NULL)
            return true;
    return false;
}

bool pst_node_is_free(const struct pst_node *node)
{
    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_arg *arg = &node->args[i];

        if (arg->exprs != NULL ||
            (arg->kind == PST_ARG_VALUE && has_free_size(arg->value)))
            return true;
        for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
            if (arg->values[k] != NULL && has_free_size(arg->values[k]))
                return true;
    }
    return false;
}
