// SPDX-License-Identifier: Apache-2.0
#include "stages/split/convert/join.h"

#include "stages/graph/calls.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/replay.h"
#include "stages/split/split.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

struct joiner {
    struct pst_plan *from, *to;
    struct pst_graph *graph; /* graph of the only stage of `to` */
    struct pst_build build;
    /* [stage][value id of its graph]: value of the joined graph */
    struct pst_value ***map;
    /* by index in from->inputs: joined value; NULL: not added yet */
    struct pst_value **inputs;
    /* by index in from->params: joined value; NULL: not added yet */
    struct pst_value **params;
    struct PST_VEC(struct pst_stage_input) stage_inputs;
    pst_join_eval_fn eval; /* NULL: all nodes are copied as they are */
    void *ctx;
    bool wide; /* parameters trained in bf16 become f32 */
    struct pst_diag *diag;
};

static enum pst_status no_memory(struct joiner *j)
{
    return pst_diag_nomem(j->diag, 0);
}

/* --- values that no node makes ------------------------------------------ */

static enum pst_status join_input(struct joiner *j, unsigned index,
                                  const struct pst_value *value,
                                  struct pst_value **ret)
{
    struct pst_stage_input input = {PST_SOURCE_MODEL_INPUT, index};

    if (j->inputs[index] == NULL) {
        j->inputs[index] =
            pst_graph_add_value(j->graph, PST_VALUE_INPUT, value->name, NULL,
                                &j->from->inputs.at[index].meta);
        if (j->inputs[index] == NULL ||
            !pst_vec_push(TAG, &j->stage_inputs, input))
            return no_memory(j);
    }
    *ret = j->inputs[index];
    return PST_OK;
}

static enum pst_status find_param(struct joiner *j,
                                  const struct pst_value *value, size_t *ret)
{
    const int index = pst_plan_find_param(j->from, value->fqn);

    if (index < 0)
        return pst_diag_set(j->diag, PST_E_INTERNAL_BUG,
                            "\"%s\" is not a parameter of the plan",
                            value->fqn);
    *ret = (size_t)index;
    return PST_OK;
}

/* Returns the dtype of a parameter in the joined plan. */
static enum pst_dtype joined_dtype(const struct joiner *j,
                                   enum pst_value_kind kind, bool requires_grad,
                                   enum pst_dtype dtype)
{
    return j->wide && kind == PST_VALUE_PARAM && requires_grad &&
                   dtype == PST_BF16
               ? PST_F32
               : dtype;
}

static enum pst_status add_param(struct joiner *j,
                                 const struct pst_value *value,
                                 struct pst_value **ret)
{
    struct pst_meta meta = value->meta;
    struct pst_value *copy;

    meta.dtype = joined_dtype(j, value->kind, value->requires_grad, meta.dtype);
    copy = pst_graph_add_value(j->graph, value->kind, value->name, value->fqn,
                               &meta);

    if (copy == NULL)
        return no_memory(j);
    copy->requires_grad = value->requires_grad;
    copy->persistent = value->persistent;
    *ret = copy;
    return PST_OK;
}

/* Adds the values of the state in the order of the plan's parameters. */
static enum pst_status join_state(struct joiner *j)
{
    const struct pst_value **first = pst_calloc(
        TAG, j->from->params.n + 1, sizeof(const struct pst_value *));
    enum pst_status status = first != NULL ? PST_OK : no_memory(j);

    for (size_t s = 0; s < j->from->stages.n && status == PST_OK; s++) {
        const struct pst_graph *graph = j->from->stages.at[s].graph;

        for (size_t i = 0; i < graph->values.n && status == PST_OK; i++) {
            size_t index = 0;

            if (!pst_value_is_state(graph->values.at[i]))
                continue;
            status = find_param(j, graph->values.at[i], &index);
            if (status == PST_OK && first[index] == NULL)
                first[index] = graph->values.at[i];
        }
    }
    for (size_t i = 0; i < j->from->params.n && status == PST_OK; i++)
        if (first[i] != NULL)
            status = add_param(j, first[i], &j->params[i]);
    pst_free(first);
    return status;
}

/* Returns the joined value that an edge transfers; for an edge that carries a
 * buffer to the next microbatch, the buffer. */
static struct pst_value *joined_value(const struct joiner *j,
                                      const struct pst_edge *edge)
{
    const struct pst_graph *from = j->from->stages.at[edge->from_stage].graph;

    if (edge->carries != NULL)
        return j->params[pst_plan_find_param(j->from, edge->carries)];
    return j->map[edge->from_stage]
                 [from->outputs.at[edge->from_output].arg.value->id];
}

static enum pst_status join_given(struct joiner *j, unsigned stage)
{
    const struct pst_stage *s = &j->from->stages.at[stage];
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->graph->inputs.n && status == PST_OK; i++) {
        const struct pst_value *value = s->graph->inputs.at[i];
        struct pst_value **copy = &j->map[stage][value->id];

        if (s->inputs[i].kind == PST_SOURCE_EDGE)
            *copy = joined_value(j, &j->from->edges.at[s->inputs[i].index]);
        else
            status = join_input(j, s->inputs[i].index, value, copy);
    }
    for (size_t i = 0; i < s->graph->values.n && status == PST_OK; i++) {
        const struct pst_value *value = s->graph->values.at[i];
        size_t index = 0;

        if (!pst_value_is_state(value))
            continue;
        status = find_param(j, value, &index);
        if (status == PST_OK)
            j->map[stage][value->id] = j->params[index];
    }
    return status;
}

/* True if the node converts a parameter to the dtype that the parameter has in
 * the joined plan: there, readers take the parameter itself. */
static bool is_dropped(const struct joiner *j, const struct pst_node *node)
{
    const struct pst_value *v =
        j->wide && node->op == &pst_op__to_copy ? node->args[0].value : NULL;

    return v != NULL && v->meta.dtype != node->outs[0]->meta.dtype &&
           joined_dtype(j, v->kind, v->requires_grad, v->meta.dtype) ==
               node->outs[0]->meta.dtype;
}

static enum pst_status join_stage(struct joiner *j, unsigned stage)
{
    const struct pst_graph *graph = j->from->stages.at[stage].graph;
    struct pst_replay replay = {.build = j->build};
    enum pst_status status;

    j->map[stage] = pst_arena_calloc(&j->to->arena, graph->values.n + 1,
                                     sizeof(struct pst_value *));
    if (j->map[stage] == NULL)
        return no_memory(j);
    replay.map = j->map[stage];
    j->graph->next_node_id =
        PST_MAX(j->graph->next_node_id, graph->next_node_id);
    status = join_given(j, stage);
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        const size_t before = j->graph->nodes.n;

        if (is_dropped(j, graph->nodes.at[i])) {
            replay.map[graph->nodes.at[i]->outs[0]->id] =
                replay.map[graph->nodes.at[i]->args[0].value->id];
            continue;
        }
        replay.eval = j->eval != NULL && j->eval(j->ctx, graph->nodes.at[i]);
        status = pst_replay_node(&replay, graph->nodes.at[i]);
        for (size_t k = before; k < j->graph->nodes.n; k++)
            j->graph->nodes.at[k]->stage = (int)stage;
    }
    return status == PST_OK ? pst_graph_carry_signatures(graph, j->graph,
                                                         replay.map, j->diag)
                            : status;
}

/* --- outputs ------------------------------------------------------------ */

/* Returns the index of a value in the joined graph's outputs; adds the value as
 * an output if needed. */
static enum pst_status place_output(struct joiner *j, struct pst_value *value,
                                    unsigned *ret)
{
    struct pst_output output = {
        .kind = PST_OUTPUT_USER, .arg = pst_v(value), .path = value->name};

    for (size_t i = 0; i < j->graph->outputs.n; i++)
        if (j->graph->outputs.at[i].arg.value == value) {
            *ret = (unsigned)i;
            return PST_OK;
        }
    *ret = (unsigned)j->graph->outputs.n;
    return pst_graph_add_output(j->graph, &output, j->diag);
}

static enum pst_status join_outputs(struct joiner *j)
{
    for (size_t i = 0; i < j->from->outputs.n; i++) {
        const struct pst_plan_output *from = &j->from->outputs.at[i];
        struct pst_plan_output to = *from;
        enum pst_status status = PST_OK;

        to.path = pst_arena_strdup(&j->to->arena, from->path);
        if (to.path == NULL)
            return no_memory(j);
        if (!from->is_tensor) {
            status = pst_arg_copy(&j->to->arena, &from->literal, &to.literal,
                                  j->diag);
        } else if (from->stage >= 0) {
            const struct pst_graph *graph =
                j->from->stages.at[from->stage].graph;

            to.stage = 0;
            status = place_output(
                j,
                j->map[from->stage]
                      [graph->outputs.at[from->output].arg.value->id],
                &to.output);
        }
        if (status != PST_OK)
            return status;
        if (!pst_vec_push(TAG, &j->to->outputs, to))
            return no_memory(j);
    }
    return PST_OK;
}

static enum pst_status join_updates(struct joiner *j)
{
    for (unsigned s = 0; s < j->from->stages.n; s++) {
        const struct pst_graph *graph = j->from->stages.at[s].graph;

        for (size_t i = 0; i < graph->outputs.n; i++) {
            struct pst_output output = graph->outputs.at[i];
            enum pst_status status;

            if (output.kind != PST_OUTPUT_BUFFER_UPDATE)
                continue;
            output.arg = pst_v(j->map[s][output.arg.value->id]);
            output.target = j->map[s][output.target->id];
            status = pst_graph_add_output(j->graph, &output, j->diag);
            if (status != PST_OK)
                return status;
        }
    }
    return PST_OK;
}

/* --- the plan ----------------------------------------------------------- */

static enum pst_status join_head(struct joiner *j)
{
    const struct pst_plan *from = j->from;
    struct pst_plan *to = j->to;
    enum pst_status status;
    char text[100];

    to->parent = j->from;
    to->loss = from->loss;
    memcpy(to->model_digest, from->model_digest, sizeof(to->model_digest));
    memcpy(to->identity, from->identity, sizeof(to->identity));
    snprintf(text, sizeof(text), "joined %s%s", j->wide ? "wide " : "",
             from->digest);
    pst_digest(text, strlen(text), to->digest);
    to->name = pst_arena_strdup(&to->arena, from->name);
    if (to->name == NULL)
        return no_memory(j);
    to->fixed = from->fixed;
    to->evaluates = from->evaluates;
    to->autocast = from->autocast;
    to->lost = from->lost;
    to->writes = from->writes;
    status = pst_symbols_copy(&from->symbols, &to->symbols, j->diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < from->inputs.n; i++) {
        struct pst_plan_input input = from->inputs.at[i];

        input.name = pst_arena_strdup(&to->arena, input.name);
        if (input.name == NULL || !pst_vec_push(TAG, &to->inputs, input))
            return no_memory(j);
    }
    return PST_OK;
}

/* Copies the parameters; stage 0 is their only reader and owner. Borrows names
 * from the parent, which outlives the plan. */
static enum pst_status join_params(struct joiner *j)
{
    for (size_t i = 0; i < j->from->params.n; i++) {
        struct pst_plan_param param = j->from->params.at[i];

        param.meta.dtype =
            joined_dtype(j, param.kind, param.requires_grad, param.meta.dtype);
        param.stages = pst_arena_calloc(&j->to->arena, 1, sizeof(unsigned));
        param.n_stages = j->params[i] != NULL ? 1 : 0;
        param.owner_stage = 0;
        param.carried = false;
        param.uses = pst_arena_calloc(&j->to->arena, 2, sizeof(unsigned));
        param.transmit = false;
        if (param.stages == NULL || param.uses == NULL ||
            !pst_vec_push(TAG, &j->to->params, param))
            return no_memory(j);
    }
    return PST_OK;
}

static enum pst_status join_all(struct joiner *j)
{
    struct pst_arena *arena = &j->to->arena;
    struct pst_stage stage = {.weights = "stage-000.safetensors"};
    enum pst_status status;

    j->map = pst_arena_calloc(arena, j->from->stages.n + 1, sizeof(void *));
    j->inputs = pst_arena_calloc(arena, j->from->inputs.n + 1, sizeof(void *));
    j->params = pst_arena_calloc(arena, j->from->params.n + 1, sizeof(void *));
    if (j->map == NULL || j->inputs == NULL || j->params == NULL)
        return no_memory(j);
    status = pst_graph_new(&stage.graph, j->diag);
    if (status != PST_OK)
        return status;
    j->graph = stage.graph;
    if (!pst_vec_push(TAG, &j->to->stages, stage)) {
        pst_graph_free(stage.graph);
        return no_memory(j);
    }
    pst_build_init(&j->build, j->graph, j->diag);
    status = join_head(j);
    if (status == PST_OK)
        status = join_state(j);
    for (unsigned s = 0; s < j->from->stages.n && status == PST_OK; s++)
        status = join_stage(j, s);
    if (status == PST_OK)
        status = join_outputs(j);
    if (status == PST_OK)
        status = join_updates(j);
    if (status == PST_OK)
        status = join_params(j);
    if (status == PST_OK)
        status = pst_graph_verify(j->graph, j->diag);
    if (status != PST_OK)
        return status;
    j->to->stages.at[0].inputs =
        pst_arena_memdup(arena, j->stage_inputs.at,
                         j->stage_inputs.n * sizeof(j->stage_inputs.at[0]));
    return j->stage_inputs.n > 0 && j->to->stages.at[0].inputs == NULL
               ? no_memory(j)
               : PST_OK;
}

enum pst_status pst_plan_join_as(struct pst_plan *plan, pst_join_eval_fn eval,
                                 void *ctx, bool wide, struct pst_plan **ret,
                                 struct pst_diag *diag)
{
    struct joiner j = {
        .from = plan, .eval = eval, .ctx = ctx, .wide = wide, .diag = diag};
    enum pst_status status = pst_plan_new(&j.to, diag);

    if (status != PST_OK)
        return status;
    status = join_all(&j);
    pst_vec_fini(&j.stage_inputs);
    if (status == PST_OK)
        status = pst_plan_index(j.to, diag);
    if (status != PST_OK) {
        pst_plan_free(j.to);
        return status;
    }
    pst_plan_measure(j.to);
    *ret = j.to;
    return PST_OK;
}

enum pst_status pst_plan_join(struct pst_plan *plan, struct pst_plan **ret,
                              struct pst_diag *diag)
{
    struct pst_plan *joined;
    size_t trained;
    enum pst_status status =
        pst_plan_join_as(plan, NULL, NULL, false, &joined, diag);

    if (status != PST_OK)
        return status;
    status = pst_plan_count(joined, &trained, diag);
    if (status == PST_OK)
        *ret = joined;
    else
        pst_plan_free(joined);
    return status;
}
