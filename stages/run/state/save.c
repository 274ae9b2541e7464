// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank writes what it is the home of. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stages/base/host/fault.h"
#include "stages/run/rank/plan/role.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/entries.h"

struct saver {
    struct pst_safetensors_writer *writer;
    size_t n; /* entries so far */
};

static enum pst_status declare(void *ctx, struct pst_rank *r,
                               const struct pst_entry *entry,
                               struct pst_diag *diag)
{
    struct saver *s = ctx;

    (void)r;
    return pst_safetensors_writer_declare(s->writer, entry->name, &entry->meta,
                                          diag);
}

static enum pst_status put(void *ctx, struct pst_rank *r,
                           const struct pst_entry *entry, struct pst_diag *diag)
{
    struct saver *s = ctx;

    return pst_safetensors_writer_put(
        s->writer, s->n++,
        pst_rank_pull(pst_rank_device(r), entry->offset,
                      pst_meta_bytes(&entry->meta)),
        diag);
}

/* --- what no stage reads -------------------------------------------------- */

/*
 * Values of the model's state that nothing reads are in no rank's arena. They
 * are what the plan has, and are saved so that a checkpoint is all of the
 * state_dict; no rank loads them.
 */
static bool is_unread(const struct pst_engine *engine, const struct pst_rank *r,
                      unsigned i)
{
    const struct pst_plan_param *p = &engine->plan->params.at[i];

    return p->n_stages == 0 && pst_plan_is_state(p) &&
           pst_engine_home(engine, i) == pst_role_number(pst_rank_role(r));
}

static enum pst_status declare_unread(const struct pst_engine *engine,
                                      const struct pst_rank *r,
                                      struct pst_safetensors_writer *w,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &engine->plan->params.at[i];
        struct pst_str name = {0};

        if (!is_unread(engine, r, i))
            continue;
        pst_plan_tensor_name(p, &name);
        status = name.failed ? pst_diag_nomem(diag, strlen(p->fqn))
                             : pst_safetensors_writer_declare(w, name.text,
                                                              &p->meta, diag);
        pst_str_fini(&name);
    }
    return status;
}

static enum pst_status put_unread(const struct pst_engine *engine,
                                  const struct pst_rank *r, struct saver *s,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->plan->params.n && status == PST_OK; i++) {
        const size_t bytes = pst_meta_bytes(&engine->plan->params.at[i].meta);
        void *data;

        if (!is_unread(engine, r, i))
            continue;
        data = pst_alloc(PST_TAG_EXEC, bytes);
        status = data == NULL
                     ? pst_diag_nomem(diag, bytes)
                     : pst_plan_read_param(engine->plan, i, data, diag);
        if (status == PST_OK)
            status = pst_safetensors_writer_put(s->writer, s->n++, data, diag);
        pst_free(data);
        pst_alive_goes_on();
    }
    return status;
}

/* --- what a save says of the state ---------------------------------------- */

struct judge {
    const struct pst_safetensors *file;
    void *buffer; /* of PIECE bytes */
    char *bad;    /* of the shard; the first one counts */
    size_t size;
};

#define PIECE (1 << 20)

/* The file has the bytes that are here, and these are numbers. */
static enum pst_status judge_entry(void *ctx, struct pst_rank *r,
                                   const struct pst_entry *entry,
                                   struct pst_diag *diag)
{
    struct judge *j = ctx;
    const void *data = pst_rank_pull(pst_rank_device(r), entry->offset,
                                     pst_meta_bytes(&entry->meta));
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(j->file, entry->name);

    enum pst_status status = PST_OK;
    bool same = e != NULL && e->bytes == pst_meta_bytes(&entry->meta);

    for (size_t at = 0; same && status == PST_OK && at < e->bytes;
         at += PIECE) {
        const size_t n = PST_MIN(e->bytes - at, (size_t)PIECE);

        status = pst_safetensors_read(e, at, n, j->buffer, diag);
        same = status != PST_OK ||
               memcmp(j->buffer, (const char *)data + at, n) == 0;
    }
    if (status == PST_OK && !same)
        status = pst_diag_set(diag, PST_ERR_IO,
                              "'%s' reads back otherwise than it was written",
                              entry->name);
    if (status != PST_OK)
        return status;
    if (j->bad[0] == '\0' && entry->no_nan &&
        pst_has_nan(entry->meta.dtype, data,
                    (size_t)pst_meta_numel(&entry->meta), entry->no_inf))
        snprintf(j->bad, j->size, "'%.180s' has a value that is not finite",
                 entry->name);
    return PST_OK;
}

static enum pst_status judge_shard(struct pst_engine *engine,
                                   struct pst_rank *r, const char *dir,
                                   uint64_t step,
                                   struct pst_checkpoint_shard *shard,
                                   struct pst_diag *diag)
{
    struct pst_safetensors *file = NULL;
    struct pst_str path = {0};
    struct judge j = {.buffer = pst_alloc(PST_TAG_EXEC, PIECE),
                      .bad = shard->bad,
                      .size = sizeof(shard->bad)};
    enum pst_status status;

    pst_str_addf(&path, "%s/step-%08" PRIu64 "/%s", dir, step, shard->file);
    status = path.failed || j.buffer == NULL
                 ? pst_diag_nomem(diag, PIECE)
                 : pst_safetensors_open(path.text, &file, diag);
    if (status == PST_OK) {
        j.file = file;
        status = pst_each_entry(engine, r, true, judge_entry, &j, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "%s", path.text);
    }
    pst_safetensors_close(file);
    pst_free(j.buffer);
    pst_str_fini(&path);
    return status;
}

static enum pst_status save_shard(struct pst_engine *engine, struct pst_rank *r,
                                  const char *dir, uint64_t step,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    struct pst_carried_part part = {0};
    struct saver s = {0};
    enum pst_status status = pst_checkpoint_shard_new(
        dir, step, pst_rank_role(r)->rank, &s.writer, diag);

    if (status != PST_OK)
        return status;
    status = pst_each_entry(engine, r, true, declare, &s, diag);
    if (status == PST_OK)
        status = declare_unread(engine, r, s.writer, diag);
    if (status == PST_OK)
        status = pst_carried_declare(engine, r, s.writer, &part, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(s.writer, diag);
    if (status == PST_OK)
        status = pst_each_entry(engine, r, true, put, &s, diag);
    if (status == PST_OK)
        status = put_unread(engine, r, &s, diag);
    if (status == PST_OK)
        status = pst_carried_put(engine, r, s.writer, &s.n, &part, diag);
    pst_carried_part_fini(&part);
    if (status != PST_OK) {
        pst_safetensors_writer_free(s.writer);
        return status;
    }
    pst_fault_point("shard");
    status = pst_checkpoint_shard_commit(s.writer, ret, diag);
    pst_fault_point("sharded");
    if (status == PST_OK)
        status = judge_shard(engine, r, dir, step, ret, diag);
    return status;
}

static enum pst_status commit(struct pst_engine *engine, const char *dir,
                              uint64_t step, unsigned keep,
                              const struct pst_save_note *note,
                              const struct pst_checkpoint_shard *shards,
                              struct pst_diag *diag)
{
    struct pst_checkpoint_info info = {.step = step,
                                       .seed = engine->options.seed,
                                       .time = (int64_t)time(NULL),
                                       .bad = note != NULL && note->diverged,
                                       .changes =
                                           note != NULL ? note->changes : 0};
    struct pst_state_names names;
    enum pst_status status;

    if (note != NULL && note->next_fault != NULL)
        snprintf(info.reason, sizeof(info.reason), "%s", note->next_fault);
    memcpy(info.model_digest, pst_carried_model(engine),
           sizeof(info.model_digest));
    memcpy(info.identity, pst_carried_identity(engine), sizeof(info.identity));
    snprintf(info.name, sizeof(info.name), "%s", engine->plan->name);
    snprintf(info.optimizer, sizeof(info.optimizer), "%s",
             engine->options.train ? pst_optim_name(&engine->options.optim)
                                   : "none");
    pst_state_names_init(&names);
    status = pst_plan_names(engine->plan, &names, diag);
    if (status == PST_OK && engine->options.train && names.adapters.n > 0)
        status = pst_plan_changed(engine->plan, &names, diag);
    pst_fault_point("manifest");
    if (status == PST_OK)
        status = pst_checkpoint_commit(dir, &info, &names, shards,
                                       engine->options.ranks, keep, diag);
    pst_fault_point("saved");
    pst_state_names_fini(&names);
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
