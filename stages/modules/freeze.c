// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/freeze.h"

#include "stages/graph/calls.h"
#include "stages/modules/widen.h"

#include <string.h>

static bool any_matches(const struct pst_model *model, const char *pattern,
                        const struct pst_value *value)
{
    const struct pst_tie *tie = NULL;

    if (pst_pattern_covers(pattern, value->fqn))
        return true;
    for (size_t i = 0; i < model->ties.n && tie == NULL; i++)
        if (strcmp(model->ties.at[i].fqn, value->fqn) == 0)
            tie = &model->ties.at[i];
    for (unsigned k = 0; tie != NULL && k < tie->n_aliases; k++)
        if (pst_pattern_covers(pattern, tie->aliases[k]))
            return true;
    return false;
}

static enum pst_status report_no_match(const struct pst_model *model,
                                       const char *pattern,
                                       struct pst_diag *diag)
{
    const struct pst_graph *graph = model->graph;
    const char **names =
        pst_calloc(PST_TAG_PLAN, graph->params.n + 1, sizeof(*names));
    int near;

    if (names == NULL)
        return pst_diag_nomem(diag, graph->params.n);
    for (size_t i = 0; i < graph->params.n; i++)
        names[i] = graph->params.at[i]->fqn;
    near = pst_nearest(pattern, names, graph->params.n);
    (void)pst_diag_set(diag, PST_E_PARAMETER_UNKNOWN,
                       "no parameter matches \"%.200s\"%s%.200s%s", pattern,
                       near < 0 ? "" : "; the nearest name is \"",
                       near < 0 ? "" : names[near], near < 0 ? "" : "\"");
    pst_free(names);
    return PST_ERR_INPUT;
}

enum pst_status pst_model_freeze(struct pst_model *model, const char *pattern,
                                 bool frozen, unsigned *ret_n,
                                 struct pst_diag *diag)
{
    const struct pst_graph *graph = model->graph;
    struct pst_str text = {0};
    bool any = false;

    *ret_n = 0;
    for (size_t i = 0; i < graph->params.n; i++) {
        struct pst_value *v = graph->params.at[i];

        if (!any_matches(model, pattern, v))
            continue;
        any = true;
        if (pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT && !frozen)
            return pst_diag_set(diag, PST_E_PARAMETER_INTEGERS,
                                "\"%s\" holds integers, which have no gradient",
                                v->fqn);
        if (!frozen && !v->requires_grad &&
            (v->meta.dtype == PST_BF16 || v->meta.dtype == PST_F16)) {
            enum pst_status status = pst_model_widen(model, v, diag);

            if (status != PST_OK)
                return status;
        }
        *ret_n += v->requires_grad == frozen;
        v->requires_grad = !frozen;
    }
    if (!any)
        return report_no_match(model, pattern, diag);
    /* The digest changes, since checkpoints then have other tensors. */
    pst_str_addf(&text, "%s %s %s", model->digest,
                 frozen ? "freeze" : "unfreeze", pattern);
    pst_digest(pst_str_text(&text), text.len, model->digest);
    pst_str_fini(&text);
    return PST_OK;
}
