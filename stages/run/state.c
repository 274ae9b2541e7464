// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank writes what it is the home of. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stages/run/engine.h"

/* One tensor of a checkpoint: name, shape, place in the rank's arena. */
struct entry {
    char name[1200];
    struct pst_meta meta;
    size_t offset;
    /* What may not be in it: nothing of what steps do not change, NaN in
     * buffers, which may begin with an infinite bound. */
    bool no_nan, no_inf;
};

typedef enum pst_status (*entry_fn)(void *ctx, struct pst_rank *r,
                                    const struct entry *entry,
                                    struct pst_diag *diag);

static enum pst_status call_entry(struct pst_rank *r, entry_fn fn, void *ctx,
                                  const char *prefix,
                                  const struct pst_rank_param *p, size_t offset,
                                  struct pst_diag *diag)
{
    const char *fqn = r->plan->params.at[p->index].fqn;
    struct entry e = {
        .meta = r->plan->params.at[p->index].meta,
        .offset = offset,
        .no_nan = p->trained || p->updated,
        .no_inf = p->trained,
    };

    if ((size_t)snprintf(e.name, sizeof(e.name), "%s.%s", prefix, fqn) >=
        sizeof(e.name))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "parameter name '%.60s...' is too long", fqn);
    pst_alive_goes_on();
    return fn(ctx, r, &e, diag);
}

/* Calls fn for everything of the state that this rank has; `home` only for
 * what it is the home of. */
static enum pst_status each_entry(const struct pst_engine *engine,
                                  struct pst_rank *r, bool home, entry_fn fn,
                                  void *ctx, struct pst_diag *diag)
{
    const struct pst_optim *optim = r->optim;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &r->params.at[i];
        const struct pst_plan_param *param = &engine->plan->params.at[p->index];

        if (home &&
            pst_engine_home(engine, (unsigned)p->index) != pst_rank_number(r))
            continue;
        if (param->kind == PST_VALUE_CONST ||
            (param->kind == PST_VALUE_BUFFER && !param->persistent &&
             !p->updated))
            continue;
        status = call_entry(r, fn, ctx,
                            param->kind == PST_VALUE_PARAM ? "param" : "buffer",
                            p, p->data, diag);
        for (unsigned k = 0;
             optim != NULL && k < PST_OPTIM_MAX_STATES && status == PST_OK; k++)
            if (p->state[k] != 0)
                status = call_entry(r, fn, ctx, optim->states[k], p,
                                    p->state[k], diag);
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

    return pst_safetensors_writer_put(
        s->writer, s->n++,
        pst_device_pull(&r->mem, pst_rank_at(r, entry->offset),
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

#define IS_ALL_ONES(x, mask) (((x) & (mask)) == (mask))

/* All bits of the exponent: infinite, or NaN if the fraction is not zero.
 * Found without a branch in the loop, which then runs at memory's speed. */
#define DEFINE_HAS(name, type, exponent, fraction)                             \
    static bool name(const void *data, size_t n, bool inf)                     \
    {                                                                          \
        const type *x = data;                                                  \
        bool found = false;                                                    \
                                                                               \
        for (size_t i = 0; i < n; i++)                                         \
            found |= IS_ALL_ONES(x[i], (type)(exponent)) &&                    \
                     (inf || (x[i] & (type)(fraction)) != 0);                  \
        return found;                                                          \
    }

DEFINE_HAS(has_f64, uint64_t, 0x7ff0000000000000u, 0x000fffffffffffffu)
DEFINE_HAS(has_f32, uint32_t, 0x7f800000u, 0x007fffffu)
DEFINE_HAS(has_f16, uint16_t, 0x7c00u, 0x03ffu)
DEFINE_HAS(has_bf16, uint16_t, 0x7f80u, 0x007fu)

/* NaN in it, or (inf) an infinite value. */
static bool has(const struct pst_meta *meta, const void *data, bool inf)
{
    const size_t n = (size_t)pst_meta_numel(meta);

    switch (meta->dtype) {
    case PST_F64:
        return has_f64(data, n, inf);
    case PST_F32:
        return has_f32(data, n, inf);
    case PST_F16:
        return has_f16(data, n, inf);
    case PST_BF16:
        return has_bf16(data, n, inf);
    default:
        return false;
    }
}

/* The file has the bytes that are here, and these are numbers. */
static enum pst_status judge_entry(void *ctx, struct pst_rank *r,
                                   const struct entry *entry,
                                   struct pst_diag *diag)
{
    struct judge *j = ctx;
    const void *data = pst_device_pull(&r->mem, pst_rank_at(r, entry->offset),
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
        has(&entry->meta, data, entry->no_inf))
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
        status = each_entry(engine, r, true, judge_entry, &j, diag);
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
    enum pst_status status =
        pst_checkpoint_shard_new(dir, step, r->rank, &s.writer, diag);

    if (status != PST_OK)
        return status;
    status = each_entry(engine, r, true, declare, &s, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(s.writer, diag);
    if (status == PST_OK)
        status = each_entry(engine, r, true, put, &s, diag);
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
        if (engine->ranks[i]->replica == 0)
            status = save_shard(engine, engine->ranks[i], dir, step,
                                &shards[engine->ranks[i]->rank], diag);
    status = pst_engine_settle(engine, status, diag);
    for (unsigned k = 0; k < n && status == PST_OK; k++)
        status = pst_engine_fetch(engine, k, &shards[k], &shards[k],
                                  sizeof(*shards), diag);
    if (status == PST_OK && pst_engine_is_zero(engine))
        status = commit(engine, dir, step, keep, note, shards, diag);
    status = pst_engine_settle(engine, status, diag);
    /* Shards of a save that failed would keep a full disk full. */
    for (unsigned i = 0; i < engine->n_local && status != PST_OK && shards; i++)
        if (engine->ranks[i]->replica == 0)
            pst_checkpoint_shard_discard(dir, step,
                                         &shards[engine->ranks[i]->rank]);
    pst_free(shards);
    return status;
}

/* --- loading -------------------------------------------------------------- */

struct loader {
    const struct pst_checkpoint *ckpt;
    const struct pst_engine *engine;
    bool other_model;
};

/* Whose checkpoints an engine takes. One that does not train takes those of any
 * model whose parameters have the same names and shapes: the same model is
 * exported once to train and once to evaluate. */
static const char *wanted_model(const struct pst_engine *engine)
{
    return engine->options.train ? engine->plan->model_digest : NULL;
}

/* A parameter may have been saved under another of its names. */
static const struct pst_safetensors_entry *find(const struct loader *l,
                                                const char *name)
{
    const struct pst_safetensors_entry *e = pst_checkpoint_find(l->ckpt, name);
    const struct pst_plan *plan = l->engine->plan;

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
    void *at = pst_rank_at(r, entry->offset);
    enum pst_status status;

    if (e == NULL && strncmp(entry->name, "param.", 6) != 0 &&
        strncmp(entry->name, "buffer.", 7) != 0)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint has no '%s': it was written with "
                            "optimizer %s",
                            entry->name, l->ckpt->info.optimizer);
    if (e == NULL)
        return pst_diag_set(
            diag, l->other_model ? PST_ERR_MISMATCH : PST_ERR_INPUT,
            "the checkpoint%s has no '%s'",
            l->other_model ? " is of another model: it" : "", entry->name);
    if (!pst_meta_same(&e->meta, &entry->meta))
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "'%s' is %s in the checkpoint, %s in the plan",
                            entry->name, pst_meta_text(&e->meta, got),
                            pst_meta_text(&entry->meta, want));
    status = pst_safetensors_read(e, 0, e->bytes, pst_device_host(&r->mem, at),
                                  diag);
    if (status == PST_OK)
        pst_device_push(&r->mem, at, e->bytes);
    return status;
}

/* What would quietly make another run of one that goes on: dropout and the
 * order of samples come from the seed. */
static enum pst_status check_run(const struct pst_engine *engine,
                                 const struct pst_checkpoint_info *info,
                                 struct pst_diag *diag)
{
    const struct pst_optim_options *optim = &engine->options.optim;

    if (!engine->options.train)
        return PST_OK;
    if (info->seed != engine->options.seed)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint was written with seed %" PRIu64
                            ", this run has seed %" PRIu64
                            ": give --seed %" PRIu64,
                            info->seed, engine->options.seed, info->seed);
    if (strcmp(info->optimizer, "none") != 0 && optim->row != NULL &&
        strcmp(info->optimizer, optim->row->name) != 0)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the checkpoint was written with optimizer %s, "
                            "this run has %s: give --optimizer %s",
                            info->optimizer, optim->row->name, info->optimizer);
    return PST_OK;
}

static enum pst_status load_step(struct pst_engine *engine, const char *dir,
                                 uint64_t step, struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {
        .dir = dir, .step = step, .model_digest = wanted_model(engine)};
    struct loader l = {.engine = engine};
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    l.ckpt = ckpt;
    l.other_model =
        strcmp(ckpt->info.model_digest, engine->plan->model_digest) != 0;
    status = check_run(engine, &ckpt->info, diag);
    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++) {
        engine->ranks[i]->is_prepared = false;
        status = each_entry(engine, engine->ranks[i], false, load, &l, diag);
    }
    pst_checkpoint_close(ckpt);
    return status;
}

/* What rank 0 found; plain bytes. */
struct found {
    uint64_t step;
    uint32_t fallback;
};

static enum pst_status find_in(const struct pst_engine *engine,
                               const struct pst_load_choice *choice,
                               const char *dir, struct pst_checkpoint_info *ret,
                               struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {
        .dir = dir,
        .step = choice->step,
        .model_digest = wanted_model(engine),
        .verify = true,
        .skipped = choice->skipped,
        .ctx = choice->ctx,
    };
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    *ret = ckpt->info;
    pst_checkpoint_close(ckpt);
    return PST_OK;
}

/* The newer of two folders. One that has none, or none that is good, does not
 * matter if the other has one. */
static enum pst_status find_newest(const struct pst_engine *engine,
                                   const struct pst_load_choice *choice,
                                   struct pst_checkpoint_info *ret,
                                   bool *ret_fallback, struct pst_diag *diag)
{
    struct pst_checkpoint_info other;
    struct pst_diag why;
    enum pst_status status = find_in(engine, choice, choice->dir, ret, diag);
    enum pst_status second;

    *ret_fallback = false;
    if (choice->fallback == NULL ||
        (status != PST_OK && status != PST_ERR_NOT_FOUND &&
         status != PST_ERR_INPUT))
        return status;
    second = find_in(engine, choice, choice->fallback, &other, &why);
    if (second != PST_OK && second != PST_ERR_NOT_FOUND &&
        second != PST_ERR_INPUT)
        return pst_diag_set(diag, second, "%s", why.text);
    if (second == PST_OK && (status != PST_OK || other.step > ret->step)) {
        *ret = other;
        *ret_fallback = true;
        status = PST_OK;
    } else if (status == PST_ERR_NOT_FOUND && second == PST_ERR_INPUT) {
        status = pst_diag_set(diag, second, "%s", why.text);
    }
    return status;
}

enum pst_status pst_engine_load(struct pst_engine *engine,
                                const struct pst_load_choice *choice,
                                struct pst_checkpoint_info *ret,
                                bool *ret_fallback, struct pst_diag *diag)
{
    struct pst_checkpoint_info info = {0};
    struct found found = {0};
    enum pst_status status = PST_OK;
    bool fallback = false;

    /* Rank 0 finds it, and reads every byte; all take that. */
    if (pst_engine_is_zero(engine)) {
        status = find_newest(engine, choice, &info, &fallback, diag);
        found = (struct found){.step = info.step, .fallback = fallback};
    }
    status = pst_engine_settle(engine, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_engine_broadcast(engine->transport, &found, sizeof(found),
                                  NULL, NULL, diag);
    if (status == PST_OK)
        status =
            load_step(engine, found.fallback ? choice->fallback : choice->dir,
                      found.step, diag);
    status = pst_engine_settle(engine, status, diag);
    if (status != PST_OK)
        return status;
    info.step = found.step;
    *ret = info;
    if (ret_fallback != NULL)
        *ret_fallback = found.fallback;
    return PST_OK;
}
