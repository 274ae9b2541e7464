// SPDX-License-Identifier: Apache-2.0
/* Lists the keys of the model's state_dict. */
#include "stages/base/str.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/split/plan.h"

#include <string.h>

bool pst_plan_casts_bf16(const struct pst_plan *plan)
{
    return plan->autocast != NULL && strcmp(plan->autocast, "bf16") == 0;
}

bool pst_plan_is_state(const struct pst_plan_param *param)
{
    return param->kind == PST_VALUE_PARAM ||
           (param->kind == PST_VALUE_BUFFER && param->persistent);
}

void pst_plan_tensor_name(const struct pst_plan_param *param,
                          struct pst_str *ret)
{
    pst_str_addf(ret, "%s%s",
                 param->kind == PST_VALUE_PARAM ? PST_CHECKPOINT_PARAM
                                                : PST_CHECKPOINT_BUFFER,
                 param->fqn);
}

static enum pst_status add_names(const struct pst_plan_param *param,
                                 const char *tensor,
                                 struct pst_state_names *names,
                                 struct pst_diag *diag)
{
    struct pst_state_name name = {
        .key = param->fqn, .tensor = tensor, .is_complex = param->is_complex};
    enum pst_status status = PST_OK;

    if (!param->nameless)
        status = pst_state_names_add(names, &name, diag);
    for (unsigned k = 0; k < param->n_aliases && status == PST_OK; k++) {
        name.key = param->aliases[k];
        status = pst_state_names_add(names, &name, diag);
    }
    name.is_window = true;
    for (unsigned k = 0; k < param->n_windows && status == PST_OK; k++) {
        name.key = param->windows[k].fqn;
        name.meta = param->windows[k].meta;
        name.offset = param->windows[k].offset;
        status = pst_state_names_add(names, &name, diag);
    }
    return status;
}

/* Returns a parameter's name in checkpoints; NULL if memory runs out. */
static const char *tensor_of(const struct pst_plan *plan, const char *fqn,
                             struct pst_arena *arena)
{
    const int i = pst_plan_find_param(plan, fqn);
    struct pst_str tensor = {0};
    const char *ret;

    if (i < 0)
        return NULL;
    pst_plan_tensor_name(&plan->params.at[i], &tensor);
    ret = tensor.failed ? NULL : pst_arena_strdup(arena, tensor.text);
    pst_str_fini(&tensor);
    return ret;
}

const struct pst_plan *pst_plan_root(const struct pst_plan *plan)
{
    while (plan->parent != NULL)
        plan = plan->parent;
    return plan;
}

const struct pst_adapters *pst_plan_adapters(const struct pst_plan *plan)
{
    return &pst_plan_root(plan)->adapters;
}

static enum pst_status add_adapters(const struct pst_plan *plan,
                                    struct pst_state_names *names,
                                    struct pst_diag *diag)
{
    const struct pst_adapters *all = pst_plan_adapters(plan);
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < all->n && status == PST_OK; i++) {
        struct pst_adapter adapter = all->at[i];

        adapter.weight = tensor_of(plan, adapter.weight, &names->arena);
        adapter.down = tensor_of(plan, adapter.down, &names->arena);
        adapter.up = tensor_of(plan, adapter.up, &names->arena);
        status =
            adapter.weight == NULL || adapter.down == NULL || adapter.up == NULL
                ? pst_diag_nomem(diag, sizeof(adapter))
                : pst_adapters_add(&names->adapters, &names->arena, &adapter,
                                   diag);
    }
    return status;
}

enum pst_status pst_plan_names(const struct pst_plan *plan,
                               struct pst_state_names *ret,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        struct pst_str tensor = {0};

        if (!pst_plan_is_state(param))
            continue;
        pst_plan_tensor_name(param, &tensor);
        status = tensor.failed ? pst_diag_nomem(diag, strlen(param->fqn))
                               : add_names(param, tensor.text, ret, diag);
        pst_str_fini(&tensor);
    }
    return status == PST_OK ? add_adapters(plan, ret, diag) : status;
}

void pst_plan_chunk_as(const struct pst_plan *from, struct pst_plan *to)
{
    for (size_t i = 0; i < to->inputs.n; i++)
        for (size_t k = 0; k < from->inputs.n; k++)
            if (strcmp(from->inputs.at[k].name, to->inputs.at[i].name) == 0)
                to->inputs.at[i].chunk = from->inputs.at[k].chunk;
}

static bool is_updated(const struct pst_plan *plan, const char *fqn)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->outputs.n; i++)
            if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE &&
                strcmp(graph->outputs.at[i].target->fqn, fqn) == 0)
                return true;
    }
    return false;
}

enum pst_status pst_plan_changed(const struct pst_plan *plan,
                                 struct pst_state_names *ret,
                                 struct pst_diag *diag)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        const char *tensor;

        if (!pst_plan_is_state(param) ||
            (!param->requires_grad && !param->changed &&
             !is_updated(plan, param->fqn)))
            continue;
        tensor = tensor_of(plan, param->fqn, &ret->arena);
        if (tensor == NULL ||
            !pst_vec_push(PST_TAG_PLAN, &ret->changed, tensor))
            return pst_diag_nomem(diag, strlen(param->fqn));
    }
    return PST_OK;
}
