// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/eval_model.h"

#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/modules/lora/lora.h"
#include "stages/modules/widen.h"

#define TAG PST_TAG_DAEMON

/* Adds to the evaluation model the adapters that split --lora has added to the
 * plan's layers. */
static enum pst_status add_adapters(const struct pst_plan *plan,
                                    struct pstd_eval_model *m,
                                    struct pst_diag *diag)
{
    const struct pst_plan *root = pst_plan_root(plan);
    const struct pst_adapters *all = &root->adapters;
    struct pst_lora *loras;
    enum pst_status status;

    if (all->n == 0)
        return PST_OK;
    loras = pst_calloc(TAG, all->n, sizeof(*loras));
    if (loras == NULL)
        return pst_diag_nomem(diag, all->n * sizeof(*loras));
    for (size_t i = 0; i < all->n; i++) {
        const struct pst_adapter *a = &all->at[i];
        const int down = pst_plan_find_param(root, a->down);

        loras[i] = (struct pst_lora){
            .pattern = a->module,
            .rank = down >= 0 ? root->params.at[down].meta.size[0] : 1,
            .alpha = a->alpha};
    }
    status = pst_model_adapt(m->file, loras, all->n, 0, &m->adapted, diag);
    pst_free(loras);
    return status;
}

/* Returns the plan's parameter called fqn, or by another name that the
 * parameter fqn has in the model; NULL: there is none. */
static const struct pst_plan_param *find_param(const struct pst_plan *plan,
                                               const struct pst_model *model,
                                               const char *fqn)
{
    int i = pst_plan_find_param(plan, fqn);

    for (size_t k = 0; k < model->ties.n && i < 0; k++) {
        const struct pst_tie *tie = &model->ties.at[k];

        if (strcmp(tie->fqn, fqn) != 0)
            continue;
        for (unsigned a = 0; a < tie->n_aliases && i < 0; a++)
            i = pst_plan_find_param(plan, tie->aliases[a]);
    }
    return i >= 0 ? &plan->params.at[i] : NULL;
}

/* Keeps in bf16 what the plan trains in bf16 (--params bf16), since evaluations
 * read the parameters of the training. */
static enum pst_status keep_bf16(const struct pst_plan *plan,
                                 struct pst_model *model, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < model->graph->params.n && status == PST_OK; i++) {
        struct pst_value *v = model->graph->params.at[i];
        const struct pst_plan_param *p = find_param(plan, model, v->fqn);

        if (p != NULL && p->requires_grad && p->meta.dtype == PST_BF16 &&
            v->meta.dtype == PST_F32)
            status = pst_model_keep_param_bf16(model, v, diag);
    }
    return status;
}

enum pst_status pstd_eval_model_open(const char *path, struct pst_plan *plan,
                                     bool averages, pst_param_fn fn, void *ctx,
                                     struct pstd_eval_model *ret,
                                     struct pst_eval_cut *cut,
                                     struct pst_diag *diag)
{
    struct pst_model *model;
    enum pst_status status = pst_model_open_cast(
        path, pst_plan_root(plan)->autocast, &ret->file, diag);

    if (status != PST_OK)
        return status;
    /* The path is not used as the name, since it may differ between ranks. */
    ret->file->name = plan->name;
    status = add_adapters(plan, ret, diag);
    model = ret->adapted != NULL ? ret->adapted : ret->file;
    if (status == PST_OK && !averages)
        status = keep_bf16(plan, model, diag);
    return status == PST_OK
               ? pst_eval_cut_other(cut, plan, fn, ctx, model, diag)
               : status;
}

void pstd_eval_model_prefix(const char *path, struct pst_diag *diag)
{
    if (strstr(diag->text, path) != NULL)
        pst_diag_prefix(diag, "--eval-model");
    else
        pst_diag_prefix(diag, "--eval-model %s", path);
}

void pstd_eval_model_close(struct pstd_eval_model *model)
{
    pst_model_close(model->adapted);
    pst_model_close(model->file);
    *model = (struct pstd_eval_model){0};
}

enum pst_status pstd_eval_model_batch(const struct pstd_config *config,
                                      const struct pst_batch *training,
                                      struct pst_plan *plan,
                                      struct pst_batch *ret,
                                      struct pst_diag *diag)
{
    struct pstd_config c = *config; /* borrows config's texts */

    c.microbatches = (struct pstd_ramp){1, {{training->microbatches, 0}}};
    c.batch = 0;
    c.microbatch_size = 0;
    if (pst_plan_is_free(plan))
        c.microbatch_size = (uint64_t)pst_plan_rows(training->plan);
    else
        c.size = NULL;
    return pstd_open_batch(&c, plan, ret, diag);
}
