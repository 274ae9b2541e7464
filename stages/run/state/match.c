// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/match.h"

#include <inttypes.h>
#include <string.h>

#include "stages/run/engine.h"
#include "stages/run/state/carried.h"

/* Checks seed and optimizer, which must be those of the checkpoint: dropout and
 * the order of samples depend on the seed. */
static enum pst_status check_run(const struct pst_engine *engine,
                                 const struct pst_checkpoint_info *info,
                                 struct pst_diag *diag)
{
    const char *optimizer = pst_optim_name(&engine->grid->options.optim);
    const bool anew = strcmp(info->optimizer, "none") != 0 &&
                      engine->grid->options.optim.row != NULL;

    if (info->seed != engine->grid->options.seed)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                            "the checkpoint was written with seed %" PRIu64
                            ", this run has seed %" PRIu64
                            ": give --seed %" PRIu64,
                            info->seed, engine->grid->options.seed, info->seed);
    /* Optimizer "none" differs from all others, too: its checkpoints have no
     * states with which another optimizer could continue. */
    if (strcmp(info->optimizer, optimizer) != 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                            "the checkpoint was written with optimizer %s, "
                            "this run has %s: give --optimizer %s%s%s%s",
                            info->optimizer, optimizer, info->optimizer,
                            anew ? "; to go on with new states add --group '*:"
                                   "optimizer="
                                 : "",
                            anew ? optimizer : "", anew ? "'" : "");
    return PST_OK;
}

/* --- adapters ------------------------------------------------------------- */

static const struct pst_adapter *find_adapter(const struct pst_adapters *list,
                                              const char *module)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].module, module) == 0)
            return &list->at[i];
    return NULL;
}

/* Returns the rank of the checkpoint's low-rank adapter of the same module, 0
 * if it is unknown. */
static int64_t saved_rank(const struct pst_checkpoint *ckpt,
                          const struct pst_adapter *adapter)
{
    const struct pst_safetensors_entry *down =
        pst_checkpoint_find(ckpt, adapter->down);

    return down != NULL && down->meta.rank == 2 ? down->meta.size[0] : 0;
}

static int64_t current_rank(const struct pst_plan *plan,
                            const struct pst_adapter *adapter)
{
    const int i =
        pst_plan_find_param(plan, adapter->down + strlen(PST_CHECKPOINT_PARAM));

    return i >= 0 ? plan->params.at[i].meta.size[0] : 0;
}

/* Appends "rank=4,alpha=8". */
static void describe_adapter(int64_t rank, double alpha, struct pst_str *out)
{
    pst_str_addf(out, "rank=%" PRId64 ",alpha=%g", rank, alpha);
}

static enum pst_status refuse_adapter(const struct pst_engine *engine,
                                      const struct pst_checkpoint *ckpt,
                                      const struct pst_adapter *theirs,
                                      const struct pst_adapter *mine,
                                      struct pst_diag *diag)
{
    struct pst_str there = {0}, here = {0};
    enum pst_status status;

    if (theirs == NULL)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                            "the checkpoint of step %" PRIu64 " has no adapter "
                            "on \"%.200s\", this model has one",
                            ckpt->info.step, mine->module);
    describe_adapter(saved_rank(ckpt, theirs), theirs->alpha, &there);
    if (mine != NULL)
        describe_adapter(current_rank(engine->grid->plan, mine), mine->alpha,
                         &here);
    if (mine == NULL)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
            "the checkpoint of step %" PRIu64 " has an adapter on \"%.200s\" "
            "(%zu in all), this model has none: give --lora %.200s:%s, or take "
            "what `penstock weights --merge` writes",
            ckpt->info.step, theirs->module, ckpt->names.adapters.n,
            theirs->module, pst_str_text(&there));
    else
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
            "the adapter of \"%.200s\" has %s in the checkpoint of step "
            "%" PRIu64 ", %s in this model: give --lora %.200s:%s",
            theirs->module, pst_str_text(&there), ckpt->info.step,
            pst_str_text(&here), theirs->module, pst_str_text(&there));
    pst_str_fini(&there);
    pst_str_fini(&here);
    return status;
}

static enum pst_status check_adapters(const struct pst_engine *engine,
                                      const struct pst_checkpoint *ckpt,
                                      struct pst_diag *diag)
{
    const struct pst_adapters *theirs = &ckpt->names.adapters;
    struct pst_state_names mine;
    enum pst_status status;

    if (!ckpt->has_names)
        return PST_OK;
    pst_state_names_init(&mine);
    status = pst_plan_names(engine->grid->plan, &mine, diag);
    for (size_t i = 0; i < theirs->n && status == PST_OK; i++) {
        const struct pst_adapter *a = &theirs->at[i];
        const struct pst_adapter *b = find_adapter(&mine.adapters, a->module);

        if (b == NULL || a->alpha != b->alpha ||
            saved_rank(ckpt, a) != current_rank(engine->grid->plan, b))
            status = refuse_adapter(engine, ckpt, a, b, diag);
    }
    for (size_t i = 0; i < mine.adapters.n && status == PST_OK; i++)
        if (find_adapter(theirs, mine.adapters.at[i].module) == NULL)
            status =
                refuse_adapter(engine, ckpt, NULL, &mine.adapters.at[i], diag);
    pst_state_names_fini(&mine);
    return status;
}

/* --- the model ------------------------------------------------------------ */

bool pst_match_is_other(const struct pst_engine *engine,
                        const struct pst_checkpoint *ckpt)
{
    return strcmp(ckpt->info.model_digest, pst_carried_model(engine)) != 0;
}

static enum pst_status check_model(const struct pst_engine *engine,
                                   const struct pst_checkpoint *ckpt,
                                   struct pst_diag *diag)
{
    const struct pst_checkpoint_info *info = &ckpt->info;
    const char *digest = pst_carried_model(engine);
    const char *identity = pst_carried_identity(engine);

    if (!pst_match_is_other(engine, ckpt) ||
        (identity[0] != '\0' && strcmp(info->identity, identity) == 0))
        return PST_OK;
    if (engine->grid->options.train)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_MODEL,
            "the checkpoint of step %" PRIu64 " is of another model, "
            "\"%.100s\" (digest %s), \"%.100s\" (digest %s) computes "
            "something else: choose another --checkpoint folder, or take the "
            "model that wrote it",
            info->step, info->name, info->model_digest,
            engine->grid->plan->name, digest);
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_OTHER_MODEL,
        "the checkpoint of step %" PRIu64 " is of the model \"%.100s\" (digest "
        "%s), \"%.100s\" (digest %s) computes something else: take the model "
        "that wrote it, or with --other-model the tensors of these names and "
        "shapes all the same",
        info->step, info->name, info->model_digest, engine->grid->plan->name,
        digest);
}

enum pst_status pst_match_check(const struct pst_engine *engine,
                                const struct pst_checkpoint *ckpt,
                                bool any_model, struct pst_diag *diag)
{
    enum pst_status status = engine->grid->options.train
                                 ? check_run(engine, &ckpt->info, diag)
                                 : PST_OK;

    if (status == PST_OK)
        status = check_adapters(engine, ckpt, diag);
    if (status != PST_OK || any_model)
        return status;
    if (engine->grid->options.train || pst_carried_is_in(ckpt))
        status = pst_carried_check(engine, ckpt, diag);
    return status != PST_OK || pst_carried_is_in(ckpt)
               ? status
               : check_model(engine, ckpt, diag);
}
