// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank writes what it is the home of. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stages/run/rank/plan/role.h"
#include "stages/run/rank/step/device.h"
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
    struct saver s = {0};
    enum pst_status status = pst_checkpoint_shard_new(
        dir, step, pst_rank_role(r)->rank, &s.writer, diag);

    if (status != PST_OK)
        return status;
    status = pst_each_entry(engine, r, true, declare, &s, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(s.writer, diag);
    if (status == PST_OK)
        status = pst_each_entry(engine, r, true, put, &s, diag);
    if (status != PST_OK) {
        pst_safetensors_writer_free(s.writer);
        return status;
    }
    status = pst_checkpoint_shard_commit(s.writer, ret, diag);
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
                                       .bad = note != NULL && note->diverged};

    if (note != NULL && note->next_fault != NULL)
        snprintf(info.reason, sizeof(info.reason), "%s", note->next_fault);
    memcpy(info.model_digest, engine->plan->model_digest,
           sizeof(info.model_digest));
    snprintf(info.optimizer, sizeof(info.optimizer), "%s",
             engine->options.train ? pst_optim_name(&engine->options.optim)
                                   : "none");
    return pst_checkpoint_commit(dir, &info, shards, engine->options.ranks,
                                 keep, diag);
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
