// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank writes what it is the home of. */
#include "stages/run/state/save.h"

#include <limits.h>
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
    if (note != NULL && note->options != NULL)
        snprintf(ret->options, sizeof(ret->options), "%s", note->options);
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

/* --- shards --------------------------------------------------------------- */

bool pst_save_shares(const struct pst_engine *engine)
{
    const struct pst_rank_role *role = pst_rank_role(engine->ranks[0]);

    for (unsigned i = 0; i < engine->plan->params.n; i++)
        if (pst_role_shares(role, i))
            return true;
    return false;
}

bool pst_save_writes(const struct pst_engine *engine, unsigned rank)
{
    return rank < engine->options.ranks || pst_save_shares(engine);
}

/* The other replicas are told what the file is called so far; "": it could not
 * be opened. */
static enum pst_status tell(struct pst_engine *engine, unsigned home,
                            const char *path, struct pst_diag *diag)
{
    char text[PATH_MAX];
    enum pst_status status = PST_OK;

    snprintf(text, sizeof(text), "%s", path);
    for (unsigned k = 1; k < engine->options.replicas && status == PST_OK;
         k++) {
        const unsigned peer = k * engine->options.ranks + home;

        if (pst_engine_local(engine, peer) == NULL)
            status = pst_engine_transfer(engine, true, peer, text, sizeof(text),
                                         diag);
    }
    return status;
}

static enum pst_status open_one(struct pst_engine *engine,
                                struct pst_shard *const *shards, unsigned rank,
                                const char *dir, uint64_t step,
                                struct pst_diag *diag)
{
    const unsigned home = rank % engine->options.ranks;
    struct pst_shard *shard = shards[rank - engine->first];
    char heard[PATH_MAX] = "";
    enum pst_status net, status = PST_OK;

    if (rank == home) {
        status = pst_shard_open(shard, dir, step, diag);
        net = tell(engine, home, status == PST_OK ? pst_shard_path(shard) : "",
                   diag);
        return status != PST_OK ? status : net;
    }
    if (pst_engine_local(engine, home) != NULL)
        return pst_shard_join(
            shard, pst_shard_path(shards[home - engine->first]), diag);
    status =
        pst_engine_transfer(engine, false, home, heard, sizeof(heard), diag);
    return status == PST_OK && heard[0] != '\0'
               ? pst_shard_join(shard, heard, diag)
               : status;
}

enum pst_status pst_save_open(struct pst_engine *engine,
                              struct pst_shard *const *shards, const char *dir,
                              uint64_t step, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++)
        status = open_one(engine, shards, engine->first + i, dir, step, diag);
    return pst_engine_settle(engine, status, diag);
}

enum pst_status pst_save_fetch(struct pst_engine *engine,
                               struct pst_checkpoint_shard *shards,
                               struct pst_diag *diag)
{
    const unsigned n = engine->options.ranks;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < pst_engine_size(engine) && status == PST_OK; k++) {
        if (!pst_save_writes(engine, k))
            continue;
        status = pst_engine_fetch(engine, k, &shards[k], &shards[k],
                                  sizeof(*shards), diag);
        if (shards[k % n].bad[0] == '\0')
            memcpy(shards[k % n].bad, shards[k].bad, sizeof(shards->bad));
    }
    return status;
}

/* --- all at once ---------------------------------------------------------- */

/* Of this process's ranks: those that write. */
static enum pst_status list_shards(const struct pst_engine *engine,
                                   struct pst_shard **shards,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++)
        if (pst_save_writes(engine, engine->first + i))
            status = pst_shard_new(engine, engine->ranks[i], &shards[i], diag);
    return status;
}

static enum pst_status write_shards(struct pst_engine *engine,
                                    struct pst_shard *const *shards,
                                    const char *dir, uint64_t step,
                                    struct pst_checkpoint_shard *all,
                                    struct pst_diag *diag)
{
    const bool shares = pst_save_shares(engine);
    enum pst_status status = PST_OK;

    if (shares)
        status = pst_save_open(engine, shards, dir, step, diag);
    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++) {
        if (shards[i] == NULL)
            continue;
        if (!shares)
            status = pst_shard_open(shards[i], dir, step, diag);
        if (status == PST_OK)
            status = pst_shard_write(shards[i], &all[engine->first + i], diag);
        if (status == PST_OK && !shares)
            status = pst_shard_commit(shards[i], &all[engine->first + i], diag);
    }
    if (shares)
        status = pst_engine_settle(engine, status, diag);
    for (unsigned i = 0; i < engine->n_local && shares && status == PST_OK; i++)
        status = pst_shard_commit(shards[i], &all[engine->first + i], diag);
    return pst_engine_settle(engine, status, diag);
}

enum pst_status pst_engine_save(struct pst_engine *engine, const char *dir,
                                uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag)
{
    const unsigned n = pst_engine_size(engine);
    struct pst_checkpoint_shard *all = NULL;
    struct pst_shard **shards = NULL;
    enum pst_status status = pst_engine_check_copies(engine, step, diag);

    if (status != PST_OK)
        return status;
    all = pst_calloc(PST_TAG_EXEC, n, sizeof(*all));
    shards =
        pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(struct pst_shard *));
    status = all == NULL || shards == NULL
                 ? pst_diag_nomem(diag, n * sizeof(*all))
                 : list_shards(engine, shards, diag);
    status = pst_engine_settle(engine, status, diag);
    if (status == PST_OK)
        status = write_shards(engine, shards, dir, step, all, diag);
    if (status == PST_OK)
        status = pst_save_fetch(engine, all, diag);
    if (status == PST_OK && pst_engine_is_zero(engine))
        status = commit(engine, dir, step, keep, note, all, diag);
    status = pst_engine_settle(engine, status, diag);
    for (unsigned i = 0; shards != NULL && i < engine->n_local; i++) {
        pst_shard_free(shards[i]);
        /* Shards of a save that failed would keep a full disk full. */
        if (status != PST_OK && all != NULL &&
            engine->first + i < engine->options.ranks)
            pst_checkpoint_shard_discard(dir, step, &all[engine->first + i]);
    }
    pst_free(shards);
    pst_free(all);
    return status;
}
