// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank writes what it is the home of. */
#include "stages/run/state/save.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stages/base/host/fault.h"
#include "stages/run/engine.h"
#include "stages/run/rank/plan/role.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/shard.h"

void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret)
{
    *ret = (struct pst_checkpoint_info){.step = step,
                                        .seed = engine->options.seed,
                                        .time = (int64_t)time(NULL),
                                        .bad = note != NULL && note->diverged,
                                        .changes =
                                            note != NULL ? note->changes : 0};
    if (note != NULL && note->next_fault != NULL)
        snprintf(ret->reason, sizeof(ret->reason), "%s", note->next_fault);
    memcpy(ret->model_digest, pst_carried_model(engine),
           sizeof(ret->model_digest));
    memcpy(ret->identity, pst_carried_identity(engine), sizeof(ret->identity));
    snprintf(ret->name, sizeof(ret->name), "%s", engine->plan->name);
    snprintf(ret->optimizer, sizeof(ret->optimizer), "%s",
             engine->options.train ? pst_optim_name(&engine->options.optim)
                                   : "none");
}

enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag)
{
    enum pst_status status;

    pst_state_names_init(ret);
    status = pst_plan_names(engine->plan, ret, diag);
    if (status == PST_OK && engine->options.train && ret->adapters.n > 0)
        status = pst_plan_changed(engine->plan, ret, diag);
    return status;
}

enum pst_status pst_save_commit(const char *dir,
                                const struct pst_checkpoint_info *info,
                                struct pst_state_names *names,
                                const struct pst_checkpoint_shard *shards,
                                unsigned n, unsigned keep,
                                struct pst_diag *diag)
{
    enum pst_status status;

    pst_fault_point("manifest");
    status = pst_checkpoint_commit(dir, info, names, shards, n, keep, diag);
    pst_fault_point("saved");
    return status;
}

static enum pst_status commit(struct pst_engine *engine, const char *dir,
                              uint64_t step, unsigned keep,
                              const struct pst_save_note *note,
                              const struct pst_checkpoint_shard *shards,
                              struct pst_diag *diag)
{
    struct pst_checkpoint_info info;
    struct pst_state_names names;
    enum pst_status status = pst_save_names(engine, &names, diag);

    pst_save_info(engine, step, note, &info);
    if (status == PST_OK)
        status = pst_save_commit(dir, &info, &names, shards,
                                 engine->options.ranks, keep, diag);
    pst_state_names_fini(&names);
    return status;
}

static enum pst_status save_shard(const struct pst_engine *engine,
                                  struct pst_rank *r, const char *dir,
                                  uint64_t step,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    struct pst_shard *shard;
    enum pst_status status = pst_shard_new(engine, r, &shard, diag);

    if (status != PST_OK)
        return status;
    status = pst_shard_write(shard, dir, step, ret, diag);
    pst_shard_free(shard);
    return status;
}

enum pst_status pst_engine_save(struct pst_engine *engine, const char *dir,
                                uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag)
{
    const unsigned n = engine->options.ranks; /* the first replica writes */
    struct pst_checkpoint_shard *shards =
        pst_calloc(PST_TAG_EXEC, n, sizeof(*shards));
    enum pst_status status = pst_engine_check_copies(engine, step, diag);

    if (status != PST_OK) {
        pst_free(shards);
        return status;
    }
    if (shards == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*shards));
    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++)
        if (pst_rank_role(engine->ranks[i])->replica == 0)
            status = save_shard(engine, engine->ranks[i], dir, step,
                                &shards[pst_rank_role(engine->ranks[i])->rank],
                                diag);
    status = pst_engine_settle(engine, status, diag);
    for (unsigned k = 0; k < n && status == PST_OK; k++)
        status = pst_engine_fetch(engine, k, &shards[k], &shards[k],
                                  sizeof(*shards), diag);
    if (status == PST_OK && pst_engine_is_zero(engine))
        status = commit(engine, dir, step, keep, note, shards, diag);
    status = pst_engine_settle(engine, status, diag);
    /* Shards of a save that failed would keep a full disk full. */
    for (unsigned i = 0; i < engine->n_local && status != PST_OK && shards; i++)
        if (pst_rank_role(engine->ranks[i])->replica == 0)
            pst_checkpoint_shard_discard(
                dir, step, &shards[pst_rank_role(engine->ranks[i])->rank]);
    pst_free(shards);
    return status;
}
