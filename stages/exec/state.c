// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of a crew: each rank writes what it is the home of. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/exec/crew.h"

/* One tensor of a checkpoint: name, shape, place in the rank's arena. */
struct entry {
    char name[1200];
    struct pst_meta meta;
    size_t offset;
};

typedef enum pst_status (*entry_fn)(void *ctx, struct pst_rank *r,
                                    const struct entry *entry,
                                    struct pst_diag *diag);

static enum pst_status call_entry(struct pst_rank *r, entry_fn fn, void *ctx,
                                  const char *prefix, const char *fqn,
                                  const struct pst_meta *meta, size_t offset,
                                  struct pst_diag *diag)
{
    struct entry e = {.meta = *meta, .offset = offset};

    if ((size_t)snprintf(e.name, sizeof(e.name), "%s.%s", prefix, fqn) >=
        sizeof(e.name))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "parameter name '%.60s...' is too long", fqn);
    return fn(ctx, r, &e, diag);
}

/* Calls fn for everything of the state that this rank has; `home` only for
 * what it is the home of. */
static enum pst_status each_entry(const struct pst_crew *crew,
                                  struct pst_rank *r, bool home, entry_fn fn,
                                  void *ctx, struct pst_diag *diag)
{
    const struct pst_optim *optim = NULL;
    enum pst_status status = PST_OK;

    if (r->options.train && strcmp(r->options.optim.name, "none") != 0)
        optim = pst_optim_find(r->options.optim.name, diag);
    for (size_t i = 0; i < r->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &r->params.at[i];
        const struct pst_plan_param *param = &crew->plan->params.at[p->index];

        if (home &&
            pst_crew_home(crew, (unsigned)p->index) != pst_rank_number(r))
            continue;
        if (param->kind == PST_VALUE_CONST ||
            (param->kind == PST_VALUE_BUFFER && !param->persistent &&
             !p->updated))
            continue;
        status = call_entry(r, fn, ctx,
                            param->kind == PST_VALUE_PARAM ? "param" : "buffer",
                            param->fqn, &param->meta, p->data, diag);
        for (unsigned k = 0;
             optim != NULL && k < PST_OPTIM_MAX_STATES && status == PST_OK; k++)
            if (p->state[k] != 0)
                status = call_entry(r, fn, ctx, optim->states[k], param->fqn,
                                    &param->meta, p->state[k], diag);
    }
    return status;
}

/* --- saving --------------------------------------------------------------- */

struct saver {
    struct pst_safetensors_writer *writer;
    size_t n; /* entries so far */
};

static enum pst_status declare(void *ctx, struct pst_rank *r,
                               const struct entry *entry, struct pst_diag *diag)
{
    struct saver *s = ctx;

    (void)r;
    return pst_safetensors_writer_declare(s->writer, entry->name, &entry->meta,
                                          diag);
}

static enum pst_status put(void *ctx, struct pst_rank *r,
                           const struct entry *entry, struct pst_diag *diag)
{
    struct saver *s = ctx;

    return pst_safetensors_writer_put(s->writer, s->n++,
                                      pst_rank_at(r, entry->offset), diag);
}

static enum pst_status save_shard(struct pst_crew *crew, struct pst_rank *r,
                                  const char *dir, uint64_t step,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    struct saver s = {0};
    enum pst_status status =
        pst_checkpoint_shard_new(dir, step, r->rank, &s.writer, diag);

    if (status != PST_OK)
        return status;
    status = each_entry(crew, r, true, declare, &s, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(s.writer, diag);
    if (status == PST_OK)
        status = each_entry(crew, r, true, put, &s, diag);
    if (status != PST_OK) {
        pst_safetensors_writer_free(s.writer);
        return status;
    }
    return pst_checkpoint_shard_commit(s.writer, ret, diag);
}

static enum pst_status commit(struct pst_crew *crew, const char *dir,
                              uint64_t step, unsigned keep,
                              const struct pst_checkpoint_shard *shards,
                              struct pst_diag *diag)
{
    struct pst_checkpoint_info info = {.step = step,
                                       .seed = crew->options.seed};

    memcpy(info.model_digest, crew->plan->model_digest,
           sizeof(info.model_digest));
    snprintf(info.optimizer, sizeof(info.optimizer), "%s",
             crew->options.train ? crew->options.optim.name : "none");
    return pst_checkpoint_commit(dir, &info, shards, crew->options.ranks, keep,
                                 diag);
}

enum pst_status pst_crew_save(struct pst_crew *crew, const char *dir,
                              uint64_t step, unsigned keep,
                              struct pst_diag *diag)
{
    const unsigned n = crew->options.ranks; /* the first replica writes */
    struct pst_checkpoint_shard *shards =
        pst_calloc(PST_TAG_EXEC, n, sizeof(*shards));
    enum pst_status status = pst_crew_check_copies(crew, step, diag);

    if (status != PST_OK) {
        pst_free(shards);
        return status;
    }
    if (shards == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*shards));
    for (unsigned i = 0; i < crew->n_local && status == PST_OK; i++)
        if (crew->ranks[i]->replica == 0)
            status = save_shard(crew, crew->ranks[i], dir, step,
                                &shards[crew->ranks[i]->rank], diag);
    status = pst_crew_settle(crew, status, diag);
    for (unsigned k = 0; k < n && status == PST_OK; k++)
        status = pst_crew_fetch(crew, k, &shards[k], &shards[k],
                                sizeof(*shards), diag);
    if (status == PST_OK && pst_crew_is_zero(crew))
        status = commit(crew, dir, step, keep, shards, diag);
    status = pst_crew_settle(crew, status, diag);
    /* Shards of a save that failed would keep a full disk full. */
    for (unsigned i = 0; i < crew->n_local && status != PST_OK && shards; i++)
        if (crew->ranks[i]->replica == 0)
            pst_checkpoint_shard_discard(dir, step,
                                         &shards[crew->ranks[i]->rank]);
    pst_free(shards);
    return status;
}

/* --- loading -------------------------------------------------------------- */

struct loader {
    const struct pst_checkpoint *ckpt;
    const struct pst_crew *crew;
    const char *optimizer;
};

/* A parameter may have been saved under another of its names. */
static const struct pst_safetensors_entry *find(const struct loader *l,
                                                const char *name)
{
    const struct pst_safetensors_entry *e = pst_checkpoint_find(l->ckpt, name);
    const struct pst_plan *plan = l->crew->plan;

    for (size_t i = 0; e == NULL && i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const size_t tail = strlen(p->fqn), all = strlen(name);

        if (all < tail + 1 || strcmp(name + all - tail, p->fqn) != 0 ||
            name[all - tail - 1] != '.')
            continue;
        for (unsigned k = 0; k < p->n_aliases && e == NULL; k++) {
            char other[1400];

            snprintf(other, sizeof(other), "%.*s%s", (int)(all - tail), name,
                     p->aliases[k]);
            e = pst_checkpoint_find(l->ckpt, other);
        }
    }
    return e;
}

static enum pst_status load(void *ctx, struct pst_rank *r,
                            const struct entry *entry, struct pst_diag *diag)
{
    const struct loader *l = ctx;
    const struct pst_safetensors_entry *e = find(l, entry->name);
    char want[PST_META_TEXT], got[PST_META_TEXT];

    if (e == NULL && strncmp(entry->name, "param.", 6) != 0 &&
        strncmp(entry->name, "buffer.", 7) != 0)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint has no '%s': it was written with "
                            "optimizer %s",
                            entry->name, l->ckpt->info.optimizer);
    if (e == NULL)
        return pst_diag_set(diag, PST_ERR_INPUT, "the checkpoint has no '%s'",
                            entry->name);
    if (!pst_meta_same(&e->meta, &entry->meta))
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "'%s' is %s in the checkpoint, %s in the plan",
                            entry->name, pst_meta_text(&e->meta, got),
                            pst_meta_text(&entry->meta, want));
    memcpy(pst_rank_at(r, entry->offset), e->data, e->bytes);
    pst_file_drop(e->data, e->bytes);
    return PST_OK;
}

/* What would quietly make another run of one that goes on: dropout and the
 * order of samples come from the seed. */
static enum pst_status check_run(const struct pst_crew *crew,
                                 const struct pst_checkpoint_info *info,
                                 struct pst_diag *diag)
{
    const char *optimizer = crew->options.optim.name;

    if (!crew->options.train)
        return PST_OK;
    if (info->seed != crew->options.seed)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint was written with seed %" PRIu64
                            ", this run has seed %" PRIu64
                            ": give --seed %" PRIu64,
                            info->seed, crew->options.seed, info->seed);
    if (strcmp(info->optimizer, "none") != 0 &&
        strcmp(optimizer, "none") != 0 &&
        strcmp(info->optimizer, optimizer) != 0)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint was written with optimizer %s, "
                            "this run has %s",
                            info->optimizer, optimizer);
    return PST_OK;
}

static enum pst_status load_step(struct pst_crew *crew, const char *dir,
                                 uint64_t step, struct pst_diag *diag)
{
    struct loader l = {.crew = crew};
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(
        dir, step, crew->plan->model_digest, false, &ckpt, NULL, diag);

    if (status != PST_OK)
        return status;
    l.ckpt = ckpt;
    status = check_run(crew, &ckpt->info, diag);
    for (unsigned i = 0; i < crew->n_local && status == PST_OK; i++) {
        crew->ranks[i]->is_prepared = false;
        status = each_entry(crew, crew->ranks[i], false, load, &l, diag);
    }
    pst_checkpoint_close(ckpt);
    return status;
}

enum pst_status pst_crew_load(struct pst_crew *crew, const char *dir,
                              uint64_t *ret_step, struct pst_diag *diag)
{
    uint64_t step = 0;
    enum pst_status status = PST_OK;

    /* Rank 0 finds the newest whole one; all take that. */
    if (pst_crew_is_zero(crew)) {
        struct pst_checkpoint *ckpt;

        status = pst_checkpoint_open(dir, PST_CHECKPOINT_LATEST,
                                     crew->plan->model_digest, true, &ckpt,
                                     NULL, diag);
        if (status == PST_OK) {
            step = ckpt->info.step;
            pst_checkpoint_close(ckpt);
        }
    }
    status = pst_crew_settle(crew, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_crew_broadcast(crew->transport, &step, sizeof(step), NULL,
                                NULL, diag);
    if (status == PST_OK)
        status = load_step(crew, dir, step, diag);
    status = pst_crew_settle(crew, status, diag);
    if (status == PST_OK)
        *ret_step = step;
    return status;
}
