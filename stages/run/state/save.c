// SPDX-License-Identifier: Apache-2.0
/* Saves checkpoints: each rank writes the tensors that it owns. */
#include "stages/run/state/save.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stages/base/host/fault.h"
#include "stages/layout/role.h"
#include "stages/run/engine.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/shard.h"

void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret)
{
    *ret = (struct pst_checkpoint_info){
        .step = step,
        .seed = engine->grid->options.seed,
        .time = (int64_t)time(NULL),
        .bad = note != NULL && note->diverged,
        .changes = note != NULL ? note->changes : 0,
        .course = note != NULL ? note->course : 0};
    ret->updates = engine->updates;
    ret->counts_updates = engine->grid->options.train;
    if (engine->grid->options.loss_scale.kind == PST_LOSS_SCALE_DYNAMIC) {
        ret->loss_scale = engine->scaler.scale;
        ret->good = engine->scaler.good;
        ret->overflows = engine->scaler.overflows;
    }
    if (note != NULL)
        ret->place = note->place;
    if (note != NULL && note->run != NULL)
        snprintf(ret->run, sizeof(ret->run), "%s", note->run);
    if (note != NULL && note->next_fault != NULL)
        snprintf(ret->reason, sizeof(ret->reason), "%s", note->next_fault);
    if (note != NULL && note->options != NULL)
        snprintf(ret->options, sizeof(ret->options), "%s%s", note->options,
                 note->more);
    memcpy(ret->model_digest, pst_carried_model(engine),
           sizeof(ret->model_digest));
    memcpy(ret->identity, pst_carried_identity(engine), sizeof(ret->identity));
    snprintf(ret->name, sizeof(ret->name), "%s", engine->grid->plan->name);
    snprintf(ret->optimizer, sizeof(ret->optimizer), "%s",
             engine->grid->options.train
                 ? pst_optim_name(&engine->grid->options.optim)
                 : "none");
}

enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag)
{
    enum pst_status status;

    pst_state_names_init(ret);
    status = pst_plan_names(engine->grid->plan, ret, diag);
    for (unsigned i = 0; i < engine->grid->plan->params.n && status == PST_OK;
         i++)
        if (engine->grid->options.train && engine->since[i] > 0 &&
            engine->grid->plan->params.at[i].requires_grad)
            status = pst_state_names_add_since(
                ret, engine->grid->plan->params.at[i].fqn, engine->since[i],
                diag);
    if (status == PST_OK && engine->grid->options.train && ret->adapters.n > 0)
        status = pst_plan_changed(engine->grid->plan, ret, diag);
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

enum pst_status pst_save_why_bad(struct pst_engine *engine,
                                 const struct pst_checkpoint_info *info,
                                 const struct pst_checkpoint_shard *shards,
                                 char ret_bad[PST_CHECKPOINT_REASON],
                                 struct pst_diag *diag)
{
    const char *why = NULL;
    enum pst_status status;

    if (pst_engine_is_zero(engine))
        why = pst_checkpoint_why_bad(info, shards, engine->grid->options.ranks);
    snprintf(ret_bad, PST_CHECKPOINT_REASON, "%s", why != NULL ? why : "");
    status = pst_engine_broadcast(engine->transport, ret_bad,
                                  PST_CHECKPOINT_REASON, NULL, NULL, diag);
    ret_bad[PST_CHECKPOINT_REASON - 1] = '\0';
    return status;
}

static enum pst_status commit_checkpoint(
    struct pst_engine *engine, const char *dir,
    const struct pst_checkpoint_info *info, unsigned keep,
    const struct pst_checkpoint_shard *shards, struct pst_diag *diag)
{
    struct pst_state_names names;
    enum pst_status status = pst_save_names(engine, &names, diag);

    if (status == PST_OK)
        status = pst_save_commit(dir, info, &names, shards,
                                 engine->grid->options.ranks, keep, diag);
    pst_state_names_fini(&names);
    return status;
}

/* --- shards --------------------------------------------------------------- */

bool pst_save_shares(const struct pst_engine *engine)
{
    const struct pst_rank_role *role = pst_rank_role(engine->ranks[0]);

    for (unsigned i = 0; i < engine->grid->plan->params.n; i++)
        if (pst_role_shares(role, i))
            return true;
    return false;
}

bool pst_save_writes(const struct pst_engine *engine, unsigned rank)
{
    return rank < engine->grid->options.ranks || pst_save_shares(engine);
}

/* --- sharded files -------------------------------------------------------- */

enum pst_status pst_save_open(const struct pst_engine *engine,
                              struct pst_shard *const *shards, const char *dir,
                              uint64_t step, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++)
        if (engine->first + i < engine->grid->options.ranks)
            status = pst_shard_open(shards[i], dir, step, diag);
    return status;
}

/* Rank `owner` of the first replica, which opened a file, and rank `peer` of
 * another replica, the index-th to write into it. At least one of the two is in
 * this process. */
struct pair {
    unsigned owner, peer, index;
    /* shards of owner and peer; NULL: in another process */
    struct pst_shard *file, *part;
};

typedef enum pst_status (*pair_fn)(struct pst_engine *engine,
                                   const struct pair *pair,
                                   struct pst_diag *diag);

/* COLLECTIVE. Calls fn for all pairs with a rank in this process. Continues
 * after a failure, since other pairs still wait for their messages; returns the
 * first failure. */
static enum pst_status call_each_pair(struct pst_engine *engine,
                                      struct pst_shard *const *shards,
                                      pair_fn fn, struct pst_diag *diag)
{
    const unsigned ranks = engine->grid->options.ranks;
    enum pst_status status = PST_OK, one = PST_OK;
    struct pst_diag ignored;

    for (unsigned peer = ranks;
         peer < pst_grid_size(engine->grid) && one != PST_ERR_PEER; peer++) {
        struct pair pair = {peer % ranks, peer, peer / ranks - 1, NULL, NULL};

        if (pst_engine_local_rank(engine, pair.owner) != NULL)
            pair.file = shards[pair.owner - engine->first];
        if (pst_engine_local_rank(engine, peer) != NULL)
            pair.part = shards[peer - engine->first];
        if (pair.file != NULL || pair.part != NULL)
            one = fn(engine, &pair, status == PST_OK ? diag : &ignored);
        if (status == PST_OK)
            status = one;
    }
    return pst_engine_agree(engine, status, diag);
}

/* The file of a rank, as it is sent to a rank that is to join it. */
struct opened {
    char path[PATH_MAX]; /* temporary path */
    uint64_t page;       /* page size of the file's host */
};

static enum pst_status join_part(struct pst_engine *engine,
                                 const struct pair *pair, struct pst_diag *diag)
{
    struct opened opened = {.path = ""};
    enum pst_status status = PST_OK;

    if (pair->file != NULL) {
        snprintf(opened.path, sizeof(opened.path), "%s",
                 pst_shard_path(pair->file));
        opened.page = (uint64_t)sysconf(_SC_PAGESIZE);
    }
    if (pair->part == NULL)
        return pst_engine_transfer(engine, true, pair->peer, &opened,
                                   sizeof(opened), diag);
    if (pair->file == NULL)
        status = pst_engine_transfer(engine, false, pair->owner, &opened,
                                     sizeof(opened), diag);
    opened.path[sizeof(opened.path) - 1] = '\0';
    return status == PST_OK
               ? pst_shard_join(pair->part, opened.path, opened.page, diag)
               : status;
}

enum pst_status pst_save_join(struct pst_engine *engine,
                              struct pst_shard *const *shards,
                              struct pst_diag *diag)
{
    return call_each_pair(engine, shards, join_part, diag);
}

/* Sends the size of the peer's edges to the owner before the edges themselves,
 * since the owner may lack memory for them. */
static enum pst_status announce_edges(struct pst_engine *engine,
                                      const struct pair *pair,
                                      struct pst_diag *diag)
{
    uint64_t bytes = pair->part != NULL ? pst_shard_edges(pair->part)->n : 0;
    enum pst_status status = PST_OK;

    if (pair->file == NULL)
        return pst_engine_transfer(engine, true, pair->owner, &bytes,
                                   sizeof(bytes), diag);
    if (pair->part == NULL)
        status = pst_engine_transfer(engine, false, pair->peer, &bytes,
                                     sizeof(bytes), diag);
    return status == PST_OK ? pst_shard_add_edges(pair->file, bytes, diag)
                            : status;
}

static enum pst_status send_edges(struct pst_engine *engine,
                                  const struct pair *pair,
                                  struct pst_diag *diag)
{
    struct pst_edges *from =
        pair->part != NULL ? pst_shard_edges(pair->part) : NULL;
    struct pst_edges *to =
        pair->file != NULL ? pst_shard_edges_at(pair->file, pair->index) : NULL;

    if (to == NULL)
        return from->n > 0 ? pst_engine_transfer(engine, true, pair->owner,
                                                 from->at, from->n, diag)
                           : PST_OK;
    if (to->n > 0 && from != NULL)
        memcpy(to->at, from->at, to->n);
    else if (to->n > 0)
        return pst_engine_transfer(engine, false, pair->peer, to->at, to->n,
                                   diag);
    return PST_OK;
}

enum pst_status pst_save_gather(struct pst_engine *engine,
                                struct pst_shard *const *shards,
                                struct pst_diag *diag)
{
    enum pst_status status =
        call_each_pair(engine, shards, announce_edges, diag);

    return status == PST_OK ? call_each_pair(engine, shards, send_edges, diag)
                            : status;
}

enum pst_status pst_save_fetch(struct pst_engine *engine,
                               struct pst_checkpoint_shard *shards,
                               struct pst_diag *diag)
{
    const unsigned n = engine->grid->options.ranks;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < pst_grid_size(engine->grid) && status == PST_OK;
         k++) {
        if (!pst_save_writes(engine, k))
            continue;
        status = pst_engine_fetch(engine, k, &shards[k], &shards[k],
                                  sizeof(*shards), diag);
        if (shards[k % n].bad[0] == '\0')
            memcpy(shards[k % n].bad, shards[k].bad, sizeof(shards->bad));
    }
    return status;
}

/* --- blocking save -------------------------------------------------------- */

/* Creates the shards of this process's ranks that write. */
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
        status = pst_engine_agree(
            engine, pst_save_open(engine, shards, dir, step, diag), diag);
    if (shares && status == PST_OK)
        status = pst_save_join(engine, shards, diag);
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
        status = pst_engine_agree(engine, status, diag);
    if (shares && status == PST_OK)
        status = pst_save_gather(engine, shards, diag);
    for (unsigned i = 0; i < engine->n_local && shares && status == PST_OK; i++)
        status = pst_shard_commit(shards[i], &all[engine->first + i], diag);
    return pst_engine_agree(engine, status, diag);
}

enum pst_status pst_engine_save(struct pst_engine *engine, const char *dir,
                                uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag)
{
    const unsigned n = pst_grid_size(engine->grid);
    struct pst_checkpoint_shard *all = NULL;
    struct pst_shard **shards = NULL;
    struct pst_checkpoint_info info;
    enum pst_status status = pst_engine_check_copies(engine, step, diag);

    if (status != PST_OK)
        return status;
    all = pst_calloc(PST_TAG_EXEC, n, sizeof(*all));
    shards =
        pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(struct pst_shard *));
    status = all == NULL || shards == NULL
                 ? pst_diag_nomem(diag, n * sizeof(*all))
                 : list_shards(engine, shards, diag);
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK)
        status = write_shards(engine, shards, dir, step, all, diag);
    if (status == PST_OK)
        status = pst_save_fetch(engine, all, diag);
    pst_save_info(engine, step, note, &info);
    if (status == PST_OK && pst_engine_is_zero(engine))
        status = commit_checkpoint(engine, dir, &info, keep, all, diag);
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK && note != NULL && note->ret_bad != NULL)
        status = pst_save_why_bad(engine, &info, all, note->ret_bad, diag);
    for (unsigned i = 0; shards != NULL && i < engine->n_local; i++) {
        pst_shard_free(shards[i]);
        /* Files of a failed save are removed: they would keep a full disk full.
         */
        if (status != PST_OK && all != NULL &&
            engine->first + i < engine->grid->options.ranks)
            pst_checkpoint_shard_discard(dir, step, &all[engine->first + i]);
    }
    pst_free(shards);
    pst_free(all);
    return status;
}
