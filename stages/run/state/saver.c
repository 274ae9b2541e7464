// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/saver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/checked.h"
#include "stages/base/host/thread.h"
#include "stages/layout/role.h"
#include "stages/run/claims.h"
#include "stages/run/engine.h"
#include "stages/run/state/save.h"
#include "stages/run/state/shard.h"

/* microseconds between two checks whether the thread has ended */
#define LOOK_US 1000
#define SPARE   8 /* 1 / SPARE of a copy's size must remain free besides it */

/* Parts of a save, in order. OPENING (open files) and FILES (commit them) exist
 * only if several ranks write into one file; else SHARDS does both. */
enum part { NOTHING, OPENING, SHARDS, FILES, MANIFEST };

/* A local rank that has something to write. */
struct local {
    unsigned rank; /* rank in the job */
    struct pst_shard *shard;
    void *copy; /* memory for the shard's copy, kept from save to save */
};

struct pst_saver {
    struct pst_engine *engine; /* engine of the copies; NULL: none yet */
    /* Copied from the engine, which may be freed before the saver. */
    unsigned first, ranks;
    bool refused;      /* a rank lacked memory for its copy: no save begins */
    bool shares_files; /* several ranks write into one file: pst_save_shares */
    bool copied;       /* the copies have the state to be saved */
    struct local *local;
    unsigned n_local;
    struct pst_shard **shards_of; /* shard of each local rank; NULL: none */
    char *dir;
    unsigned keep;
    struct pst_checkpoint_info info;
    struct pst_state_names names;        /* rank 0, for the manifest */
    struct pst_checkpoint_shard *shards; /* shards of all ranks */
    char bad[PST_CHECKPOINT_REASON];     /* see pst_saver_why_bad */
    enum part part;                      /* part that runs */
    /* Result of the part: set by the thread, or if it could not start; read
     * after it is joined. */
    enum pst_status status;
    struct pst_diag diag;
    bool runs; /* the thread must be joined */
    pthread_t thread;
    atomic_bool done;           /* the thread has finished the part */
    atomic_uint_fast64_t moves; /* progress of the thread */
};

enum pst_status pst_saver_new(struct pst_saver **ret, struct pst_diag *diag)
{
    struct pst_saver *s = pst_calloc(PST_TAG_EXEC, 1, sizeof(*s));

    if (s == NULL)
        return pst_diag_nomem(diag, sizeof(*s));
    pst_state_names_init(&s->names);
    *ret = s;
    return PST_OK;
}

/* --- the thread ----------------------------------------------------------- */

static void end_copies(struct pst_saver *s)
{
    for (unsigned i = 0; i < s->n_local; i++)
        if (s->local[i].shard != NULL)
            pst_shard_copy_end(s->local[i].shard);
}

static enum pst_status write_shards(struct pst_saver *s)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < s->n_local && status == PST_OK; i++) {
        struct pst_shard *shard = s->local[i].shard;
        struct pst_checkpoint_shard *is = &s->shards[s->local[i].rank];

        if (!s->shares_files)
            status = pst_shard_open(shard, s->dir, s->info.step, &s->diag);
        if (status == PST_OK)
            status = pst_shard_write(shard, is, &s->diag);
        if (status == PST_OK && !s->shares_files)
            status = pst_shard_commit(shard, is, &s->diag);
    }
    return status;
}

static enum pst_status commit_files(struct pst_saver *s)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < s->n_local && status == PST_OK; i++)
        status = pst_shard_commit(s->local[i].shard,
                                  &s->shards[s->local[i].rank], &s->diag);
    return status;
}

static enum pst_status run_current_part(struct pst_saver *s)
{
    switch (s->part) {
    case OPENING:
        return pst_save_open(s->engine, s->shards_of, s->dir, s->info.step,
                             &s->diag);
    case SHARDS:
        return write_shards(s);
    case FILES:
        return commit_files(s);
    default:
        return pst_save_commit(s->dir, &s->info, &s->names, s->shards, s->ranks,
                               s->keep, &s->diag);
    }
}

static void *run_part(void *ctx)
{
    struct pst_saver *s = ctx;

    pst_alive_count_in(&s->moves);
    end_copies(s);
    s->status = run_current_part(s);
    atomic_store(&s->done, true);
    return NULL;
}

/* Starts a thread for a part of the save. If this fails, the failure is the
 * result of the part, and the copy is completed here: updates wait for the
 * copy, and it may yet be saved to another folder. */
static void start_part(struct pst_saver *s, enum part part)
{
    int err;

    s->part = part;
    if (s->status == PST_OK) {
        atomic_store(&s->done, false);
        err = pst_thread_start(&s->thread, run_part, s);
        s->runs = err == 0;
        if (err != 0)
            s->status = pst_diag_errno(&s->diag, err,
                                       "cannot start a thread for checkpoints");
    }
    if (!s->runs)
        end_copies(s);
}

bool pst_saver_is_working(const struct pst_saver *s)
{
    return s->runs && !atomic_load(&s->done);
}

const char *pst_saver_why_bad(const struct pst_saver *s)
{
    return s->bad;
}

double pst_saver_seconds_waited(const struct pst_saver *s)
{
    double most = 0;

    for (unsigned i = 0; i < s->n_local; i++)
        if (s->local[i].shard != NULL)
            most = PST_MAX(most, pst_shard_seconds_waited(s->local[i].shard));
    return most;
}

void pst_saver_wait(struct pst_saver *s)
{
    uint_fast64_t seen = 0;

    while (pst_saver_is_working(s)) {
        const uint_fast64_t now = atomic_load(&s->moves);

        if (now != seen)
            pst_alive_progress();
        seen = now;
        (void)usleep(LOOK_US);
    }
}

static void join_thread(struct pst_saver *s)
{
    pst_saver_wait(s);
    if (s->runs)
        (void)pthread_join(s->thread, NULL);
    s->runs = false;
}

/* --- the copy ------------------------------------------------------------- */

static void drop_shards(struct pst_saver *s)
{
    for (unsigned i = 0; i < s->n_local; i++) {
        pst_shard_free(s->local[i].shard);
        s->local[i].shard = NULL;
        s->shards_of[s->local[i].rank - s->first] = NULL;
    }
}

static enum pst_status list_shards(struct pst_saver *s, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < s->n_local && status == PST_OK; i++) {
        struct local *l = &s->local[i];

        status =
            pst_shard_new(s->engine, pst_engine_local_rank(s->engine, l->rank),
                          &l->shard, diag);
        if (status == PST_OK)
            s->shards_of[l->rank - s->first] = l->shard;
    }
    return status;
}

/* Allocates the copies. The saver's thread is the first to write to their
 * pages, so page faults happen there. */
static enum pst_status alloc_copies(struct pst_saver *s, struct pst_diag *diag)
{
    for (unsigned i = 0; i < s->n_local; i++) {
        const size_t bytes = pst_shard_bytes(s->local[i].shard);

        s->local[i].copy = pst_alloc(PST_TAG_EXEC, bytes);
        if (s->local[i].copy == NULL)
            return pst_diag_nomem(diag, bytes);
    }
    return PST_OK;
}

static enum pst_status find_local(struct pst_saver *s,
                                  struct pst_engine *engine,
                                  struct pst_diag *diag)
{
    s->engine = engine;
    s->first = engine->first;
    s->ranks = engine->grid->options.ranks;
    s->shares_files = pst_save_shares(engine);
    s->shards = pst_calloc(PST_TAG_EXEC, pst_grid_size(engine->grid),
                           sizeof(*s->shards));
    s->local = pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(*s->local));
    s->shards_of =
        pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(struct pst_shard *));
    if (s->shards == NULL || s->local == NULL || s->shards_of == NULL)
        return pst_diag_nomem(diag, engine->n_local * sizeof(*s->local));
    for (unsigned i = 0; i < engine->n_local; i++) {
        const unsigned rank = engine->first + i;

        if (pst_save_writes(engine, rank))
            s->local[s->n_local++] = (struct local){.rank = rank};
    }
    return PST_OK;
}

/* COLLECTIVE, at the first save. Allocates the copies; if memory is short on
 * one rank, no rank has one. */
static enum pst_status prepare_copies(struct pst_saver *s,
                                      struct pst_engine *engine,
                                      struct pst_diag *diag)
{
    uint64_t *bytes = pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(*bytes));
    enum pst_status status =
        bytes != NULL ? find_local(s, engine, diag)
                      : pst_diag_nomem(diag, engine->n_local * sizeof(*bytes));

    if (status == PST_OK)
        status = list_shards(s, diag);
    for (unsigned i = 0; i < s->n_local && status == PST_OK; i++) {
        const size_t size = pst_shard_bytes(s->local[i].shard);

        bytes[s->local[i].rank - engine->first] =
            pst_size_add(size, size / SPARE);
    }
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK)
        status = pst_engine_agree(
            engine,
            pst_claims_check(engine, bytes, "to copy their state", diag), diag);
    if (status == PST_OK)
        status = pst_engine_agree(engine, alloc_copies(s, diag), diag);
    drop_shards(s);
    pst_free(bytes);
    s->refused = status != PST_OK && status != PST_ERR_PEER;
    return s->refused ? PST_ERR_NOMEM : status;
}

static enum pst_status set_dir(struct pst_saver *s, const char *dir)
{
    pst_free(s->dir);
    s->dir = pst_strdup(PST_TAG_EXEC, dir);
    return s->dir != NULL ? PST_OK : pst_diag_nomem(&s->diag, strlen(dir));
}

static enum pst_status begin_copies(struct pst_saver *s)
{
    const enum pst_status status = list_shards(s, &s->diag);

    for (unsigned i = 0; i < s->n_local && status == PST_OK; i++)
        pst_shard_copy_begin(s->local[i].shard, s->local[i].copy);
    s->copied = status == PST_OK;
    return status;
}

/* --- the save ------------------------------------------------------------- */

static void begin_shards(struct pst_saver *s)
{
    memset(s->shards, 0, pst_grid_size(s->engine->grid) * sizeof(*s->shards));
    if (s->n_local == 0) /* a rank of another replica that writes nothing */
        s->part = SHARDS;
    else
        start_part(s, s->shares_files ? OPENING : SHARDS);
}

enum pst_status pst_saver_begin(struct pst_saver *s, struct pst_engine *engine,
                                const char *dir, uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag)
{
    enum pst_status status;

    if (s->refused)
        return pst_diag_set(diag, PST_E_MEMORY_HOST, "no memory for a copy");
    if (s->part != NOTHING || (s->engine != NULL && s->engine != engine))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "a save is under way already");
    status = pst_engine_check_copies(engine, step, diag);
    if (status == PST_OK && s->engine == NULL)
        status = prepare_copies(s, engine, diag);
    if (status != PST_OK)
        return status;
    s->keep = keep;
    pst_save_info(engine, step, note, &s->info);
    drop_shards(s);
    s->status = set_dir(s, dir);
    if (s->status == PST_OK)
        s->status = begin_copies(s);
    begin_shards(s);
    return PST_OK;
}

enum pst_status pst_saver_begin_again(struct pst_saver *s, const char *dir,
                                      struct pst_diag *diag)
{
    if (s->part != NOTHING || s->engine == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG, "no save has ended");
    s->status = s->copied ? set_dir(s, dir)
                          : pst_diag_set(&s->diag, PST_E_MEMORY_HOST,
                                         "the state was not copied");
    begin_shards(s);
    return PST_OK;
}

static void discard_shards(struct pst_saver *s)
{
    for (unsigned i = 0; i < s->n_local && s->dir != NULL; i++) {
        if (s->local[i].shard != NULL)
            pst_shard_close(s->local[i].shard);
        if (s->local[i].rank < s->ranks)
            pst_checkpoint_shard_discard(s->dir, s->info.step,
                                         &s->shards[s->local[i].rank]);
    }
}

/* COLLECTIVE, once all shards are written: gathers their results on rank 0. */
static enum pst_status begin_manifest(struct pst_saver *s,
                                      struct pst_diag *diag)
{
    struct pst_engine *engine = s->engine;
    enum pst_status status = pst_save_fetch(engine, s->shards, diag);

    if (status != PST_OK)
        return status;
    if (!pst_engine_is_zero(engine)) {
        s->part = MANIFEST;
        return PST_AGAIN;
    }
    s->status = pst_save_names(engine, &s->names, &s->diag);
    start_part(s, MANIFEST);
    return PST_AGAIN;
}

/* COLLECTIVE. Begins the next part, after one has succeeded on all ranks. */
static enum pst_status begin_next_part(struct pst_saver *s,
                                       struct pst_diag *diag)
{
    enum pst_status status;

    if (s->part == MANIFEST)
        return pst_save_why_bad(s->engine, &s->info, s->shards, s->bad, diag);
    if (s->part == FILES || !s->shares_files)
        return begin_manifest(s, diag);
    status = s->part == OPENING
                 ? pst_save_join(s->engine, s->shards_of, diag)
                 : pst_save_gather(s->engine, s->shards_of, diag);
    if (status != PST_OK)
        return status;
    start_part(s, s->part == OPENING ? SHARDS : FILES);
    return PST_AGAIN;
}

enum pst_status pst_saver_continue(struct pst_saver *s, struct pst_diag *diag)
{
    enum pst_status status;

    join_thread(s);
    if (s->status != PST_OK)
        *diag = s->diag;
    status = pst_engine_agree(s->engine, s->status, diag);
    if (status == PST_OK)
        status = begin_next_part(s, diag);
    if (status == PST_AGAIN)
        return status;
    pst_state_names_fini(&s->names);
    pst_state_names_init(&s->names);
    /* Files of a failed save are removed: they would keep a full disk full. */
    if (status != PST_OK && status != PST_ERR_PEER)
        discard_shards(s);
    s->part = NOTHING;
    s->status = PST_OK;
    return status;
}

void pst_saver_free(struct pst_saver *s)
{
    if (s == NULL)
        return;
    for (unsigned i = 0; i < s->n_local; i++)
        if (s->local[i].shard != NULL)
            pst_shard_cancel(s->local[i].shard);
    join_thread(s);
    if (s->part != NOTHING &&
        s->part != MANIFEST) /* rank 0 may already be committing the manifest */
        discard_shards(s);
    drop_shards(s);
    for (unsigned i = 0; i < s->n_local; i++)
        pst_free(s->local[i].copy);
    pst_state_names_fini(&s->names);
    pst_free(s->local);
    pst_free(s->shards_of);
    pst_free(s->shards);
    pst_free(s->dir);
    pst_free(s);
}
