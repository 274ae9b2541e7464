// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the edges whose values can have a gradient. A value from another stage
 * must not get a gradient that it does not have in the uncut graph: some
 * operators use another kernel for their other gradients if they must compute
 * that one, too, so the bits would depend on the cut.
 */
#include "stages/graph/build.h"
#include "stages/ops/core/op.h"
#include "stages/split/split.h"

#define TAG PST_TAG_PLAN

struct any_depends {
    const bool *depends; /* by id of the value */
    bool ret;
};

static bool is_float(const struct pst_value *value)
{
    return pst_dtype_kind(value->meta.dtype) == PST_KIND_FLOAT;
}

static void record_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct any_depends *any = ctx;

    (void)arg;
    any->ret = any->ret || any->depends[(*slot)->id];
}

/* Marks the stage's values that a gradient can reach, by the rules of
 * autodiff.h. Edges from earlier stages have been marked. */
static void mark_values(const struct pst_plan *plan,
                        const struct pst_stage *stage, bool *depends)
{
    const struct pst_graph *graph = stage->graph;

    for (size_t i = 0; i < graph->params.n; i++)
        depends[graph->params.at[i]->id] =
            graph->params.at[i]->requires_grad && is_float(graph->params.at[i]);
    for (size_t i = 0; i < graph->inputs.n; i++)
        depends[graph->inputs.at[i]->id] =
            is_float(graph->inputs.at[i]) &&
            (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT ||
             plan->edges.at[stage->inputs[i].index].depends);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct any_depends any = {depends, false};

        if (node->no_grad || node->op->vjp == pst_vjp_none)
            continue;
        pst_node_uses(node, record_use, &any);
        for (unsigned k = 0; any.ret && k < node->n_outs; k++)
            depends[node->outs[k]->id] = is_float(node->outs[k]);
    }
}

static enum pst_status mark_edges_from(struct pst_plan *plan, unsigned s,
                                       struct pst_diag *diag)
{
    const struct pst_graph *graph = plan->stages.at[s].graph;
    bool *depends = pst_calloc(TAG, graph->values.n + 1, sizeof(*depends));

    if (depends == NULL)
        return pst_diag_nomem(diag, graph->values.n);
    mark_values(plan, &plan->stages.at[s], depends);
    for (size_t i = 0; i < plan->edges.n; i++) {
        struct pst_edge *edge = &plan->edges.at[i];

        /* a buffer that is carried to the next microbatch has no gradient */
        if (edge->from_stage != s || edge->carries != NULL)
            continue;
        edge->depends =
            depends[graph->outputs.at[edge->from_output].arg.value->id];
    }
    pst_free(depends);
    return PST_OK;
}

enum pst_status pst_plan_mark_depends(struct pst_plan *plan,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < plan->stages.n && status == PST_OK; s++)
        status = mark_edges_from(plan, s, diag);
    return status;
}
