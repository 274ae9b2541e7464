// SPDX-License-Identifier: Apache-2.0
#include "stages/split/split.h"

#include "stages/frontend/identity.h"
#include "stages/ops/core/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

enum pst_status pst_split_note(struct pst_splitter *s, const char *fmt, ...)
{
    char text[512];
    va_list args;
    const char *copy;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (size_t i = 0; i < s->plan->notes.n; i++)
        if (strcmp(s->plan->notes.at[i], text) == 0)
            return PST_OK; /* noted before, e.g. when the plan was first cut */
    copy = pst_arena_strdup(&s->plan->arena, text);
    if (copy == NULL || !pst_vec_push(TAG, &s->plan->notes, copy))
        return pst_diag_nomem(s->diag, strlen(text));
    return PST_OK;
}

/* Removes updates of user inputs: the caller's tensor is not written. Later
 * nodes in the graph still read the new value. */
static enum pst_status drop_input_updates(struct pst_splitter *s)
{
    struct pst_graph *graph = s->graph;
    size_t kept = 0;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *output = &graph->outputs.at[i];
        enum pst_status status;

        if (output->kind != PST_OUTPUT_INPUT_UPDATE) {
            graph->outputs.at[kept++] = *output;
            continue;
        }
        status = pst_split_note(s,
                                "the model writes its input \"%s\": the "
                                "caller's tensor is left as it is",
                                output->target->name);
        if (status != PST_OK)
            return status;
    }
    graph->outputs.n = kept;
    return PST_OK;
}

static enum pst_status copy_notes(struct pst_splitter *s)
{
    for (size_t i = 0; i < s->model->notes.n; i++) {
        enum pst_status status = pst_split_note(s, "%s", s->model->notes.at[i]);

        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status fill_head(struct pst_splitter *s)
{
    struct pst_plan *plan = s->plan;
    enum pst_status status;

    plan->model = s->model;
    plan->name = pst_arena_strdup(&plan->arena,
                                  s->model->name ? s->model->name : "model");
    if (plan->name == NULL)
        return pst_diag_nomem(s->diag, 0);
    memcpy(plan->model_digest, s->model->digest, sizeof(plan->model_digest));
    memcpy(plan->identity, s->model->identity, sizeof(plan->identity));
    plan->evaluates = s->model->evaluates;
    plan->writes = s->model->writes;
    for (size_t i = 0; i < s->model->adapters.n; i++)
        if (pst_adapters_add(&plan->adapters, &plan->arena,
                             &s->model->adapters.at[i], s->diag) != PST_OK)
            return PST_ERR_NOMEM;
    if (s->model->autocast != NULL) {
        plan->autocast = pst_arena_strdup(&plan->arena, s->model->autocast);
        if (plan->autocast == NULL)
            return pst_diag_nomem(s->diag, strlen(s->model->autocast));
    }
    if (s->model->lost != NULL) {
        plan->lost = pst_arena_strdup(&plan->arena, s->model->lost);
        if (plan->lost == NULL)
            return pst_diag_nomem(s->diag, strlen(s->model->lost));
    }
    status = pst_symbols_copy(&s->model->symbols, &plan->symbols, s->diag);
    if (status == PST_OK && s->model->fixed != NULL) {
        plan->fixed = pst_arena_strdup(&plan->arena, s->model->fixed);
        if (plan->fixed == NULL)
            return pst_diag_nomem(s->diag, strlen(s->model->fixed));
    }
    for (size_t i = 0; i < s->graph->inputs.n && status == PST_OK; i++) {
        const struct pst_value *value = s->graph->inputs.at[i];
        struct pst_plan_input input = {.meta = value->meta,
                                       .chunk = value->meta.rank > 0 ? 0 : -1};

        pst_meta_set_contiguous(&input.meta);
        input.name = pst_arena_strdup(&plan->arena, value->name);
        status = pst_exprs_copy(&plan->arena, value->dims, value->meta.rank,
                                &input.dims, s->diag);
        if (status == PST_OK &&
            (input.name == NULL || !pst_vec_push(TAG, &plan->inputs, input)))
            status = pst_diag_nomem(s->diag, sizeof(input));
    }
    return status;
}

enum pst_status pst_split_head(struct pst_splitter *s)
{
    enum pst_status status = copy_notes(s);

    return status == PST_OK ? fill_head(s) : status;
}

static enum pst_status split_graph(struct pst_splitter *s)
{
    enum pst_status status =
        pst_graph_copy(s->model->graph, &s->graph, s->diag);

    if (status == PST_OK)
        status = copy_notes(s);
    if (status == PST_OK)
        status = drop_input_updates(s);
    if (status == PST_OK)
        status = pst_split_loss(s);
    if (status == PST_OK)
        status = fill_head(s);
    if (status == PST_OK)
        status = pst_split_assign(s);
    if (status == PST_OK)
        status = pst_split_cut(s);
    if (status == PST_OK)
        status = pst_split_state(s);
    if (status == PST_OK)
        status = pst_split_gradients(s);
    if (status == PST_OK)
        status = pst_split_unread(s);
    if (status == PST_OK && s->plan->identity[0] == '\0')
        status = pst_model_identity(s->model, s->plan->identity, s->diag);
    if (status == PST_OK)
        pst_plan_measure(s->plan);
    return status;
}

enum pst_status pst_split(struct pst_model *model,
                          const struct pst_split_options *options,
                          struct pst_plan **ret, struct pst_diag *diag)
{
    struct pst_splitter s = {.model = model, .options = options, .diag = diag};
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = pst_plan_new(&s.plan, diag);
    if (status != PST_OK)
        return status;
    status = split_graph(&s);
    pst_graph_free(s.graph);
    if (status != PST_OK) {
        pst_plan_free(s.plan);
        return status;
    }
    *ret = s.plan;
    return PST_OK;
}
