// SPDX-License-Identifier: Apache-2.0
/* Creates, indexes and frees plans. */
#include "stages/ops/core/op.h"
#include "stages/ops/plugin/plugin.h"
#include "stages/split/split.h"

#define TAG PST_TAG_PLAN

enum pst_status pst_plan_new(struct pst_plan **ret, struct pst_diag *diag)
{
    struct pst_plan *plan = pst_calloc(TAG, 1, sizeof(*plan));

    if (plan == NULL)
        return pst_diag_nomem(diag, sizeof(*plan));
    pst_arena_init(&plan->arena, TAG);
    pst_symbols_init(&plan->symbols);
    pst_map_init(&plan->names, TAG);
    plan->loss = -1;
    *ret = plan;
    return PST_OK;
}

void pst_plan_free(struct pst_plan *plan)
{
    if (plan == NULL)
        return;
    pst_joint_free_cached(plan);
    for (size_t i = 0; i < plan->stages.n; i++)
        pst_graph_free(plan->stages.at[i].graph);
    pst_plan_close_files(plan);
    pst_vec_fini(&plan->stages);
    pst_vec_fini(&plan->edges);
    pst_vec_fini(&plan->inputs);
    pst_vec_fini(&plan->outputs);
    pst_vec_fini(&plan->params);
    pst_vec_fini(&plan->parts);
    pst_vec_fini(&plan->adapters);
    pst_vec_fini(&plan->notes);
    pst_symbols_fini(&plan->symbols);
    pst_map_fini(&plan->names);
    pst_arena_fini(&plan->arena);
    pst_free(plan);
}

void pst_plan_measure(struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->stages.n; i++) {
        struct pst_stage *stage = &plan->stages.at[i];
        const struct pst_graph *graph = stage->graph;

        stage->flops = 0.0;
        stage->param_bytes = stage->out_bytes = 0;
        for (size_t k = 0; k < graph->nodes.n; k++)
            stage->flops += pst_node_flops(graph->nodes.at[k]);
        for (size_t k = 0; k < graph->params.n; k++)
            stage->param_bytes += pst_meta_bytes(&graph->params.at[k]->meta);
    }
    for (size_t k = 0; k < plan->edges.n; k++)
        plan->stages.at[plan->edges.at[k].from_stage].out_bytes +=
            pst_meta_bytes(&plan->edges.at[k].meta);
}

static enum pst_status index_param(struct pst_plan *plan, size_t i,
                                   struct pst_diag *diag)
{
    struct pst_plan_param *param = &plan->params.at[i];
    void *number = (void *)(i + 1); /* the map stores numbers as pointers */
    bool ok = pst_map_put(&plan->names, param->fqn, number);

    for (unsigned k = 0; ok && k < param->n_aliases; k++)
        ok = pst_map_has(&plan->names, param->aliases[k]) ||
             pst_map_put(&plan->names, param->aliases[k], number);
    for (unsigned k = 0; ok && k < param->n_windows; k++)
        ok = pst_map_has(&plan->names, param->windows[k].fqn) ||
             pst_map_put(&plan->names, param->windows[k].fqn, number);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(*param));
}

static void index_carried(struct pst_plan *plan, const struct pst_edge *edge)
{
    const int index =
        edge->carries != NULL ? pst_plan_find_param(plan, edge->carries) : -1;

    if (index < 0)
        return;
    plan->params.at[index].carried = true;
    plan->params.at[index].writer = edge->from_stage;
}

enum pst_status pst_plan_index(struct pst_plan *plan, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++)
        status = index_param(plan, i, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < plan->edges.n; i++)
        index_carried(plan, &plan->edges.at[i]);
    plan->joints = pst_arena_calloc(&plan->arena, plan->stages.n + 1,
                                    sizeof(struct pst_joint *));
    return plan->joints != NULL ? PST_OK : pst_diag_nomem(diag, 0);
}

bool pst_plan_may_be_loss(const struct pst_value *value)
{
    for (unsigned d = 0; value->dims != NULL && d < value->meta.rank; d++)
        if (value->dims[d] != NULL)
            return false;
    return pst_dtype_kind(value->meta.dtype) == PST_KIND_FLOAT &&
           pst_meta_numel(&value->meta) == 1;
}

bool pst_plan_reads_input(const struct pst_plan *plan, unsigned input)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_stage *stage = &plan->stages.at[s];

        for (size_t i = 0; i < stage->graph->inputs.n; i++)
            if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
                stage->inputs[i].index == input)
                return true;
    }
    for (size_t i = 0; i < plan->outputs.n; i++)
        if (plan->outputs.at[i].is_tensor && plan->outputs.at[i].stage < 0 &&
            plan->outputs.at[i].output == input)
            return true;
    return false;
}

bool pst_plan_has_plugin(const struct pst_plan *plan,
                         const struct pst_plugin *plugin)
{
    for (size_t i = 0; i < plan->stages.n; i++) {
        const struct pst_graph *graph = plan->stages.at[i].graph;

        for (size_t k = 0; k < graph->nodes.n; k++)
            if (pst_plugin_of(graph->nodes.at[k]->op) == plugin)
                return true;
    }
    return false;
}

int pst_plan_find_param(const struct pst_plan *plan, const char *fqn)
{
    return (int)(size_t)pst_map_get(&plan->names, fqn) - 1;
}

unsigned pst_plan_uses(const struct pst_plan_param *param, unsigned stage)
{
    for (unsigned k = 0; k < param->n_stages; k++)
        if (param->stages[k] == stage)
            return param->uses[k];
    return 0;
}

size_t pst_plan_edges_of(const struct pst_plan *plan, unsigned stage,
                         unsigned output, size_t *ret_n)
{
    size_t from = 0, to = plan->edges.n, end;

    while (from < to) {
        const size_t mid = from + (to - from) / 2;
        const struct pst_edge *e = &plan->edges.at[mid];

        if (e->from_stage < stage ||
            (e->from_stage == stage && e->from_output < output))
            from = mid + 1;
        else
            to = mid;
    }
    for (end = from; end < plan->edges.n &&
                     plan->edges.at[end].from_stage == stage &&
                     plan->edges.at[end].from_output == output;)
        end++;
    *ret_n = end - from;
    return from;
}
