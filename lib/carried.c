// SPDX-License-Identifier: Apache-2.0
/* Loads checkpoints of runs that have changed their model (penstock swap,
 * freeze, attr). The session continues with the plan in the checkpoint, like a
 * resume. */
#include <string.h>

#include "daemon/common/setup.h"
#include "lib/object.h"
#include "stages/base/alloc.h"
#include "stages/run/state/carried.h"
#include "stages/split/convert/again.h"

#define TAG PST_TAG_CLIENT

/* The plan that rank 0 has found in a checkpoint; plain bytes, sent to all. */
struct found {
    uint64_t step;
    bool any; /* it has a plan */
    /* digests of the model that the run began with */
    char base_digest[33], base_identity[33];
};

/* Reads which plan the checkpoint of `step` contains. Errors are ignored here,
 * since the load reports them. step: with PST_CHECKPOINT_LATEST, finds the
 * checkpoint that a load would choose, and verifies every byte. Rank 0. */
static struct found find_plan(const char *folder, uint64_t step,
                              const struct pst_checkpoint_lineage *lineage)
{
    const struct pst_checkpoint_query query = {.dir = folder,
                                               .step = step,
                                               .lineage = lineage,
                                               .verify = step ==
                                                         PST_CHECKPOINT_LATEST};
    const struct pst_safetensors_entry *base;
    struct pst_checkpoint *ckpt;
    struct found found = {0};
    struct pst_diag ignored;

    if (pst_checkpoint_open(&query, &ckpt, &ignored) != PST_OK)
        return found;
    base = pst_checkpoint_find(ckpt, PST_CARRIED_BASE);
    found.step = ckpt->info.step;
    found.any = pst_carried_is_in(ckpt) && base != NULL && base->bytes == 32 &&
                pst_safetensors_read(base, 0, 32, found.base_digest,
                                     &ignored) == PST_OK;
    memcpy(found.base_identity, ckpt->info.identity,
           sizeof(found.base_identity));
    pst_checkpoint_close(ckpt);
    return found;
}

/* COLLECTIVE. */
static enum pst_status share(penstock_session *s, struct found *found,
                             struct pst_diag *diag)
{
    return pst_engine_broadcast(s->transport, found, sizeof(*found), NULL, NULL,
                                diag);
}

static enum pst_status check_ranks(const penstock_session *s,
                                   const struct pst_plan *plan,
                                   struct pst_diag *diag)
{
    const unsigned ranks =
        s->transport->ops->size(s->transport) / pstd_replicas(&s->config);

    if (ranks <= plan->stages.n)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_TOO_FEW_STAGES,
                        "the model was changed in the run of this checkpoint, "
                        "which holds the plan of it: that has %zu stages, too "
                        "few for %u ranks",
                        plan->stages.n, ranks);
}

/* Opens the plan in the checkpoint of `step`. The caller must free *ret, also
 * after a failure. */
static enum pst_status open_plan(penstock_session *s, const char *folder,
                                 uint64_t step, struct pstl_changed **ret,
                                 struct pst_diag *diag)
{
    struct pstl_changed *changed = pst_calloc(TAG, 1, sizeof(*changed));
    const struct pst_plan_param *low;
    enum pst_status status;

    *ret = changed;
    if (changed == NULL)
        return pst_diag_nomem(diag, sizeof(*changed));
    status = pst_carried_open(s->model->opened.plan, folder, step,
                              &changed->carried, diag);
    if (status == PST_OK && changed->carried == NULL)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                              "the checkpoint of step %llu is of the model "
                              "that was opened, which this session has changed",
                              (unsigned long long)step);
    if (status == PST_OK)
        status = check_ranks(s, changed->carried->plan, diag);
    if (status == PST_OK)
        status = pstd_open_batch(&s->config, changed->carried->plan,
                                 &changed->of.batch, diag);
    if (status == PST_OK)
        status = pstl_session_keep_gradients(s, &changed->of.batch, diag);
    if (status == PST_OK)
        status = pstl_list_state(changed->of.batch.plan, &changed->params,
                                 &changed->buffers, diag);
    low = status == PST_OK && s->trains
              ? pst_plan_find_bf16(changed->of.batch.plan)
              : NULL;
    if (low != NULL)
        status = pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                              "parameter '%s' is bf16 in the checkpoint: the "
                              "library trains f32 only",
                              low->fqn);
    return status;
}

enum pst_status pstl_carried_open(penstock_session *s, const char *folder,
                                  const struct pst_checkpoint_lineage *lineage,
                                  struct penstock_session *ret_next,
                                  struct pstl_changed **ret_changed,
                                  struct pst_diag *diag)
{
    const struct pst_diag refused = *diag;
    struct penstock_session next = {
        .model = s->model, .transport = s->transport, .options = s->options};
    struct pstl_changed *changed = NULL;
    struct found found = {0};
    enum pst_status status;

    *ret_changed = NULL;
    if (pstl_is_first(s) && refused.error == PST_E_CHECKPOINT_OTHER_MODEL)
        found = find_plan(folder, PST_CHECKPOINT_LATEST, lineage);
    status = share(s, &found, diag);
    if (status != PST_OK)
        return status;
    if (!found.any) {
        *diag = refused;
        return refused.status;
    }
    status = pst_transport_agree(
        s->transport, open_plan(s, folder, found.step, &changed, diag), diag);
    if (status == PST_OK) {
        next.batch = changed->of.batch;
        pstd_set_batch(&next.options, &next.batch);
        status = pst_transport_agree(s->transport,
                                     pst_engine_new(next.batch.plan,
                                                    s->transport, &next.options,
                                                    &next.engine, diag),
                                     diag);
    }
    if (status == PST_OK)
        status = pstl_session_describe_step(&next, diag);
    if (status == PST_OK)
        status = pstl_changed_check(s, &next, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK) {
        *ret_next = next;
        *ret_changed = changed;
        return PST_OK;
    }
    pstl_session_free_step(&next);
    pst_engine_free(next.engine);
    pstl_changed_free(changed);
    return status;
}

enum pst_status pstl_carried_keep(penstock_session *s, const char *folder,
                                  uint64_t step, struct pst_diag *diag)
{
    struct pst_plan *plan = s->model->opened.plan;
    struct found found = {0};
    enum pst_status status;

    if (s->changed != NULL)
        return PST_OK;
    if (pstl_is_first(s))
        found = find_plan(folder, step, NULL);
    status = share(s, &found, diag);
    if (status != PST_OK)
        return status;
    pstl_carried_drop(s);
    if (!found.any || strcmp(found.base_digest, plan->model_digest) == 0)
        return PST_OK;
    memcpy(plan->base_digest, found.base_digest, sizeof(plan->base_digest));
    memcpy(plan->base_identity, found.base_identity,
           sizeof(plan->base_identity));
    s->keeps_base = true;
    return PST_OK;
}

void pstl_carried_drop(penstock_session *s)
{
    struct pst_plan *plan = s->model->opened.plan;

    if (!s->keeps_base)
        return;
    plan->base_digest[0] = plan->base_identity[0] = '\0';
    s->keeps_base = false;
}
