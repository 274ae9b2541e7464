// SPDX-License-Identifier: Apache-2.0
#include "stages/split/convert/again.h"

#include "stages/ops/core/op.h"
#include "stages/split/convert/join.h"
#include "stages/split/split.h"
#include "stages/split/store/pack.h"

#include <string.h>

#define TAG PST_TAG_PLAN

struct maker {
    struct pst_plan *plan;
    struct pst_plan *joined; /* the plan joined to one stage */
    struct pst_model *model;
    struct pst_graph *graph; /* graph of the model */
    pst_param_fn fn;
    void *ctx;
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct maker *m)
{
    return pst_diag_nomem(m->diag, 0);
}

/* --- graph ---------------------------------------------------------------- */

/* Lists all inputs of the plan in order, also unused ones. */
static enum pst_status list_inputs(struct maker *m)
{
    const struct pst_stage *only = &m->joined->stages.at[0];
    const size_t n = m->plan->inputs.n;
    struct pst_value **inputs =
        pst_arena_calloc(&m->model->arena, n + 1, sizeof(*inputs));

    if (inputs == NULL)
        return no_memory(m);
    for (size_t i = 0; i < m->graph->inputs.n; i++)
        inputs[only->inputs[i].index] = m->graph->inputs.at[i];
    for (size_t i = 0; i < n; i++) {
        const struct pst_plan_input *input = &m->plan->inputs.at[i];
        enum pst_status status;

        if (inputs[i] == NULL)
            inputs[i] = pst_graph_add_value(m->graph, PST_VALUE_INPUT,
                                            input->name, NULL, &input->meta);
        if (inputs[i] == NULL)
            return no_memory(m);
        status = pst_exprs_copy(&m->graph->arena, input->dims, input->meta.rank,
                                &inputs[i]->dims, m->diag);
        if (status != PST_OK)
            return status;
    }
    m->graph->inputs.n = 0;
    for (size_t i = 0; i < n; i++)
        if (!pst_vec_push(TAG, &m->graph->inputs, inputs[i]))
            return no_memory(m);
    return PST_OK;
}

/* Lists the model's outputs, then the buffer updates. */
static enum pst_status list_outputs(struct maker *m)
{
    struct pst_graph *graph = m->graph;
    struct pst_output *old = pst_arena_memdup(
        &m->model->arena, graph->outputs.at,
        PST_MAX(graph->outputs.n, 1) * sizeof(*graph->outputs.at));
    const size_t n = graph->outputs.n;

    if (old == NULL)
        return no_memory(m);
    graph->outputs.n = 0;
    for (size_t i = 0; i < m->joined->outputs.n; i++) {
        const struct pst_plan_output *from = &m->joined->outputs.at[i];
        struct pst_output output = {
            .kind = PST_OUTPUT_USER, .arg = from->literal, .path = from->path};
        enum pst_status status;

        if (from->is_tensor && from->stage < 0)
            output.arg = pst_v(graph->inputs.at[from->output]);
        else if (from->is_tensor)
            output.arg = old[from->output].arg;
        status = pst_graph_add_output(graph, &output, m->diag);
        if (status != PST_OK)
            return status;
    }
    for (size_t i = 0; i < n; i++) {
        enum pst_status status = PST_OK;

        if (old[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            status = pst_graph_add_output(graph, &old[i], m->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* --- state ---------------------------------------------------------------- */

static enum pst_status add_weight(struct maker *m, unsigned i, const char *fqn)
{
    const struct pst_plan_param *param = &m->plan->params.at[i];
    const struct pst_weight w = {.fqn = fqn,
                                 .meta = param->meta,
                                 .is_param = param->kind == PST_VALUE_PARAM,
                                 .requires_grad = param->requires_grad,
                                 .is_complex = param->is_complex,
                                 .rounded = param->rounded,
                                 .rounds = param->rounds,
                                 .stored = true,
                                 .read = m->fn,
                                 .ctx = m->ctx,
                                 .number = i};

    return pst_vec_push(TAG, &m->model->weights, w) ? PST_OK : no_memory(m);
}

static enum pst_status add_param(struct maker *m, unsigned i)
{
    const struct pst_plan_param *param = &m->plan->params.at[i];
    const struct pst_tie tie = {param->fqn, param->aliases, param->n_aliases};
    const struct pst_state_storage storage = {param->fqn, param->nameless,
                                              param->windows, param->n_windows};
    struct pst_value *value;
    enum pst_status status = add_weight(m, i, param->fqn);

    for (unsigned k = 0; k < param->n_aliases && status == PST_OK; k++)
        status = add_weight(m, i, param->aliases[k]);
    if (status != PST_OK)
        return status;
    if ((param->n_aliases > 0 && !pst_vec_push(TAG, &m->model->ties, tie)) ||
        (param->n_windows > 0 &&
         !pst_vec_push(TAG, &m->model->storages, storage)))
        return no_memory(m);
    if (param->n_stages > 0)
        return PST_OK;
    value = pst_graph_add_value(m->graph, param->kind, param->fqn, param->fqn,
                                &param->meta);
    if (value == NULL)
        return no_memory(m);
    value->requires_grad = param->requires_grad;
    value->persistent = param->persistent;
    return PST_OK;
}

/* Reorders the values of the state: in the plan they have the order of the
 * original model. */
static enum pst_status order_state(struct maker *m)
{
    struct pst_graph *graph = m->graph;
    struct pst_value **sorted =
        pst_calloc(TAG, m->plan->params.n + 1, sizeof(*sorted));
    size_t next = 0;

    if (sorted == NULL)
        return no_memory(m);
    for (size_t i = 0; i < graph->values.n; i++)
        if (pst_value_is_state(graph->values.at[i]))
            sorted[pst_plan_find_param(m->plan, graph->values.at[i]->fqn)] =
                graph->values.at[i];
    for (size_t i = 0; i < graph->values.n; i++) {
        if (!pst_value_is_state(graph->values.at[i]))
            continue;
        graph->values.at[i] = sorted[next++];
        graph->values.at[i]->id = (unsigned)i;
    }
    pst_free(sorted);
    return PST_OK;
}

static enum pst_status list_state(struct maker *m)
{
    struct pst_model *model = m->model;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < m->plan->params.n && status == PST_OK; i++)
        status = add_param(m, i);
    if (status == PST_OK)
        status = order_state(m);
    for (size_t i = 0; i < model->weights.n && status == PST_OK; i++)
        if (!pst_map_put(&model->weights_by_fqn, model->weights.at[i].fqn,
                         &model->weights.at[i]))
            status = no_memory(m);
    return status;
}

/* --- the model ------------------------------------------------------------ */

static enum pst_status list_modules(struct maker *m)
{
    enum pst_status status = PST_OK;
    struct pst_map seen;

    pst_map_init(&seen, TAG);
    for (size_t i = 1; i < m->graph->calls.n && status == PST_OK; i++) {
        const char *path = m->graph->calls.at[i]->path;

        if (!pst_map_has(&seen, path) &&
            (!pst_map_put(&seen, path, m) ||
             !pst_vec_push(TAG, &m->model->modules, path)))
            status = no_memory(m);
    }
    pst_map_fini(&seen);
    return status;
}

static enum pst_status fill_head(struct maker *m)
{
    const struct pst_plan *plan = m->plan;
    const struct pst_adapters *adapters = pst_plan_adapters(plan);
    struct pst_model *model = m->model;

    model->name = plan->name;
    model->torch_version = "";
    model->fixed = plan->fixed;
    model->evaluates = plan->evaluates;
    model->autocast = plan->autocast;
    model->lost = plan->lost;
    model->writes = plan->writes;
    memcpy(model->digest, plan->model_digest, sizeof(model->digest));
    memcpy(model->identity, plan->identity, sizeof(model->identity));
    for (size_t i = 0; i < plan->notes.n; i++)
        if (!pst_vec_push(TAG, &model->notes, plan->notes.at[i]))
            return no_memory(m);
    for (size_t i = 0; i < adapters->n; i++)
        if (!pst_vec_push(TAG, &model->adapters, adapters->at[i]))
            return no_memory(m);
    return pst_symbols_copy(&plan->symbols, &model->symbols, m->diag);
}

static enum pst_status make_model(struct maker *m)
{
    enum pst_status status =
        pst_plan_join_as(m->plan, NULL, NULL, false, &m->joined, m->diag);

    if (status != PST_OK)
        return status;
    m->graph = m->model->graph = m->joined->stages.at[0].graph;
    status = fill_head(m);
    if (status == PST_OK)
        status = list_inputs(m);
    if (status == PST_OK)
        status = list_outputs(m);
    if (status == PST_OK)
        status = list_state(m);
    if (status == PST_OK)
        status = list_modules(m);
    m->joined->stages.at[0].graph = NULL; /* owned by the model now */
    pst_plan_free(m->joined);
    return status;
}

const struct pst_plan_param *pst_plan_find_bf16(const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->params.n; i++)
        if (plan->params.at[i].requires_grad &&
            plan->params.at[i].meta.dtype == PST_BF16)
            return &plan->params.at[i];
    return NULL;
}

enum pst_status pst_plan_check_editable(const struct pst_plan *plan,
                                        struct pst_diag *diag)
{
    const struct pst_plan_param *low = pst_plan_find_bf16(plan);

    return low == NULL ? PST_OK
                       : pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                                      "parameter '%s' is trained in bf16 "
                                      "(--params bf16): such a model stays as "
                                      "it was split",
                                      low->fqn);
}

enum pst_status pst_plan_model(struct pst_plan *plan, pst_param_fn fn,
                               void *ctx, struct pst_model **ret,
                               struct pst_diag *diag)
{
    struct maker m = {.plan = plan, .fn = fn, .ctx = ctx, .diag = diag};
    enum pst_status status = pst_model_new(&m.model, diag);

    if (status != PST_OK)
        return status;
    status = make_model(&m);
    if (status == PST_OK)
        *ret = m.model;
    else
        pst_model_close(m.model);
    return status;
}

/* --- cutting -------------------------------------------------------------- */

/* Lists the parameters that `like` transmits and the owners of its carried
 * buffers, if the model has these tensors. */
static enum pst_status list_transmitted(struct pst_splitter *s,
                                        const struct pst_plan *like,
                                        struct pst_split_options *options)
{
    struct pst_arena *arena = &s->plan->arena;
    const char **names =
        pst_arena_calloc(arena, like->params.n + 1, sizeof(*names));
    const char **owners =
        pst_arena_calloc(arena, like->params.n + 1, sizeof(*owners));

    if (names == NULL || owners == NULL)
        return pst_diag_nomem(s->diag, like->params.n);
    options->transmit = names;
    options->owner = owners;
    for (size_t i = 0; i < like->params.n; i++) {
        const struct pst_plan_param *param = &like->params.at[i];

        if (pst_model_weight(s->model, param->fqn) == NULL)
            continue;
        if (param->transmit)
            names[options->n_transmit++] = param->fqn;
        if (!param->carried)
            continue;
        owners[options->n_owner] =
            pst_arena_printf(arena, "%s=%u", param->fqn, param->owner_stage);
        if (owners[options->n_owner++] == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status check_stages(const struct pst_splitter *s)
{
    bool *any = pst_calloc(TAG, s->n_stages, sizeof(*any));
    enum pst_status status = PST_OK;

    if (any == NULL)
        return pst_diag_nomem(s->diag, s->n_stages);
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const int stage = s->graph->nodes.at[i]->stage;

        if (stage < 0 || (unsigned)stage >= s->n_stages)
            status = pst_diag_set(s->diag, PST_E_INTERNAL_BUG,
                                  "a node has no stage");
        else
            any[stage] = true;
    }
    for (unsigned k = 0; k < s->n_stages && status == PST_OK; k++)
        if (!any[k])
            status = pst_diag_set(s->diag, PST_E_CUT_EMPTY,
                                  "stage %u would have nothing to compute", k);
    pst_free(any);
    return status;
}

static enum pst_status split_again(struct pst_splitter *s,
                                   const struct pst_plan *like,
                                   struct pst_split_options *options)
{
    const char *loss_fn = pst_plan_root(like)->loss_fn;
    enum pst_status status =
        pst_graph_copy(s->model->graph, &s->graph, s->diag);

    if (status == PST_OK && loss_fn != NULL) {
        s->plan->loss_fn = pst_arena_strdup(&s->plan->arena, loss_fn);
        if (s->plan->loss_fn == NULL)
            status = pst_diag_nomem(s->diag, strlen(loss_fn));
    }
    if (status == PST_OK)
        status = list_transmitted(s, like, options);
    if (status == PST_OK)
        status = pst_split_head(s);
    if (status != PST_OK)
        return status;
    pst_graph_dce(s->graph, true);
    status = check_stages(s);
    if (status == PST_OK)
        status = pst_split_cut(s);
    if (status == PST_OK)
        status = pst_split_state(s);
    if (status == PST_OK)
        status = pst_split_gradients(s);
    if (status != PST_OK)
        return status;
    pst_plan_measure(s->plan);
    return pst_plan_digest(s->plan, s->diag);
}

enum pst_status pst_split_again(struct pst_model *model,
                                const struct pst_plan *like, int loss,
                                struct pst_plan **ret, struct pst_diag *diag)
{
    struct pst_split_options options = {0};
    struct pst_splitter s = {.model = model,
                             .options = &options,
                             .n_stages = (unsigned)like->stages.n,
                             .diag = diag};
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = pst_plan_new(&s.plan, diag);
    if (status != PST_OK)
        return status;
    s.plan->loss = loss;
    status = split_again(&s, like, &options);
    pst_graph_free(s.graph);
    if (status != PST_OK) {
        pst_plan_free(s.plan);
        return status;
    }
    *ret = s.plan;
    return PST_OK;
}
