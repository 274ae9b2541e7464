// SPDX-License-Identifier: Apache-2.0
/* Parameters, buffers and constants of a plan: their readers and owners. */
#include "stages/ops/core/op.h"
#include "stages/split/carry.h"
#include "stages/split/store/pack.h"

#include <string.h>

#define TAG PST_TAG_PLAN

static enum pst_status copy_names(struct pst_splitter *s,
                                  const struct pst_map *ties,
                                  struct pst_plan_param *param)
{
    const struct pst_tie *tie = pst_map_get(ties, param->fqn);
    struct pst_arena *arena = &s->plan->arena;

    param->fqn = pst_arena_strdup(arena, param->fqn);
    param->n_aliases = tie == NULL ? 0 : tie->n_aliases;
    param->aliases =
        pst_arena_calloc(arena, param->n_aliases + 1, sizeof(char *));
    if (param->fqn == NULL || param->aliases == NULL)
        return pst_diag_nomem(s->diag, 0);
    for (unsigned k = 0; k < param->n_aliases; k++) {
        param->aliases[k] = pst_arena_strdup(arena, tie->aliases[k]);
        if (param->aliases[k] == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status copy_windows(struct pst_splitter *s,
                                    struct pst_plan_param *param)
{
    const struct pst_state_storage *storage = NULL;
    struct pst_arena *arena = &s->plan->arena;

    for (size_t i = 0; i < s->model->storages.n && storage == NULL; i++)
        if (strcmp(s->model->storages.at[i].fqn, param->fqn) == 0)
            storage = &s->model->storages.at[i];
    if (storage == NULL)
        return PST_OK;
    param->nameless = storage->nameless;
    param->n_windows = storage->n_windows;
    param->windows = pst_arena_memdup(
        arena, storage->windows, storage->n_windows * sizeof(*param->windows));
    if (param->windows == NULL)
        return pst_diag_nomem(s->diag, storage->n_windows);
    for (unsigned k = 0; k < param->n_windows; k++) {
        param->windows[k].fqn =
            pst_arena_strdup(arena, storage->windows[k].fqn);
        if (param->windows[k].fqn == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status add_param(struct pst_splitter *s,
                                 const struct pst_map *ties,
                                 const struct pst_value *value)
{
    struct pst_plan_param param = {.fqn = value->fqn,
                                   .kind = value->kind,
                                   .meta = value->meta,
                                   .requires_grad = value->requires_grad,
                                   .persistent = value->persistent};
    const struct pst_weight *weight = pst_model_weight(s->model, value->fqn);
    enum pst_status status = copy_names(s, ties, &param);

    if (status == PST_OK)
        status = copy_windows(s, &param);
    if (status != PST_OK)
        return status;
    pst_meta_set_contiguous(&param.meta);
    param.is_complex = weight != NULL && weight->is_complex;
    /* With --params bf16 the plan itself has that dtype: no rounding. */
    if (param.meta.dtype != PST_F32) {
        param.rounded = false;
    } else if (weight != NULL && weight->read != NULL) {
        param.rounded = weight->rounded;
        param.rounds = weight->rounds;
    } else if (weight != NULL && weight->meta.dtype != param.meta.dtype) {
        param.rounded = true;
        param.rounds = weight->meta.dtype;
    }
    return pst_vec_push(TAG, &s->plan->params, param)
               ? PST_OK
               : pst_diag_nomem(s->diag, sizeof(param));
}

static void add_reader(struct pst_plan *plan, const char *fqn, unsigned stage,
                       bool list)
{
    struct pst_plan_param *param =
        &plan->params.at[pst_plan_find_param(plan, fqn)];

    if (list)
        param->stages[param->n_stages] = stage;
    param->n_stages++;
}

/* Lists the stages that read each parameter; if !list, only counts them. */
static enum pst_status list_readers(struct pst_splitter *s, bool list)
{
    struct pst_plan *plan = s->plan;

    for (unsigned k = 0; k < plan->stages.n; k++) {
        const struct pst_stage *stage = &plan->stages.at[k];

        for (size_t i = 0; i < stage->graph->values.n; i++)
            if (pst_value_is_state(stage->graph->values.at[i]))
                add_reader(plan, stage->graph->values.at[i]->fqn, k, list);
        for (size_t i = 0; i < stage->graph->inputs.n; i++)
            if (stage->inputs[i].kind == PST_SOURCE_EDGE &&
                plan->edges.at[stage->inputs[i].index].carries != NULL)
                add_reader(plan, plan->edges.at[stage->inputs[i].index].carries,
                           k, list);
    }
    for (size_t i = 0; i < plan->params.n; i++) {
        struct pst_plan_param *param = &plan->params.at[i];

        if (list) {
            param->owner_stage = param->n_stages > 0 ? param->stages[0] : 0;
            continue;
        }
        param->stages = pst_arena_calloc(&plan->arena, param->n_stages + 1,
                                         sizeof(*param->stages));
        param->uses = pst_arena_calloc(&plan->arena, param->n_stages + 1,
                                       sizeof(*param->uses));
        param->n_stages = 0;
        if (param->stages == NULL || param->uses == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status unknown_param(struct pst_splitter *s, const char *name,
                                     const char *what)
{
    const struct pst_map *index = &s->plan->names;
    const char **names =
        pst_arena_calloc(&s->plan->arena, index->n + 1, sizeof(*names));
    int near;

    if (names == NULL)
        return pst_diag_nomem(s->diag, 0);
    for (size_t i = 0; i < index->n; i++)
        names[i] = index->entries[i].key;
    near = pst_nearest(name, names, index->n);
    return pst_diag_set(s->diag, PST_E_PARAMETER_UNKNOWN,
                        "the model has no parameter \"%.200s\" to %s%s"
                        "%.200s%s",
                        name, what, near < 0 ? "" : "; the nearest name is \"",
                        near < 0 ? "" : names[near], near < 0 ? "" : "\"");
}

/* Finds a parameter by any of its names, for the option `what`. */
static enum pst_status find_param(struct pst_splitter *s, const char *name,
                                  const char *what, struct pst_plan_param **ret)
{
    const int index = pst_plan_find_param(s->plan, name);

    if (index < 0)
        return unknown_param(s, name, what);
    *ret = &s->plan->params.at[index];
    if ((*ret)->kind != PST_VALUE_PARAM)
        return pst_diag_set(
            s->diag, PST_E_PARAMETER_UNKNOWN,
            "\"%.200s\" is not a parameter: buffers and constants "
            "are copied, there is nothing to %s",
            name, what);
    if ((*ret)->n_stages > 1)
        return PST_OK;
    return pst_split_note(
        s, "\"%.200s\" is read by %s, so there is nothing to %s", name,
        (*ret)->n_stages == 1 ? "one stage only" : "no stage", what);
}

static enum pst_status mark_transmitted(struct pst_splitter *s)
{
    const struct pst_split_options *o = s->options;
    struct pst_plan_param *param;
    enum pst_status status;

    for (size_t i = 0; i < o->n_transmit; i++) {
        status = find_param(s, o->transmit[i], "transmit", &param);
        if (status != PST_OK)
            return status;
        param->transmit = param->n_stages > 1;
    }
    for (size_t i = 0; i < o->n_replicate; i++) {
        status = find_param(s, o->replicate[i], "replicate", &param);
        if (status != PST_OK)
            return status;
        if (param->transmit)
            return pst_diag_set(s->diag, PST_E_CUT_OPTIONS,
                                "\"%.200s\" is to be replicated and "
                                "transmitted: name it once",
                                o->replicate[i]);
    }
    return PST_OK;
}

enum pst_status pst_split_state(struct pst_splitter *s)
{
    struct pst_map ties; /* name -> names of the same tensor */
    enum pst_status status = PST_OK;

    pst_map_init(&ties, TAG);
    for (size_t i = s->model->ties.n; i-- > 0 && status == PST_OK;)
        if (!pst_map_put(&ties, s->model->ties.at[i].fqn,
                         &s->model->ties.at[i]))
            status = pst_diag_nomem(s->diag, sizeof(struct pst_tie));
    for (size_t i = 0; i < s->graph->values.n && status == PST_OK; i++)
        if (pst_value_is_state(s->graph->values.at[i]))
            status = add_param(s, &ties, s->graph->values.at[i]);
    pst_map_fini(&ties);
    if (status == PST_OK)
        status = pst_plan_index(s->plan, s->diag);
    if (status == PST_OK)
        status = list_readers(s, false);
    if (status == PST_OK)
        status = list_readers(s, true);
    if (status == PST_OK)
        status = mark_transmitted(s);
    if (status == PST_OK)
        status = pst_split_owners(s);
    return status;
}
