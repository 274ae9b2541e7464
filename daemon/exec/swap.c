// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/swap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/modules/replace.h"
#include "stages/run/data/tokens.h"
#include "stages/run/state/carried.h"
#include "stages/split/again.h"

#define PIECE    ((size_t)60000) /* of a file, in one broadcast */
#define MAX_FILE ((uint64_t)64 << 30)

/* The plan of a run in which a module was replaced. */
struct pstd_swap {
    struct pst_plan *plan;       /* made here, */
    struct pst_carried *carried; /* or a checkpoint had it */
    struct pst_batch batch;
    struct pst_tokens *tokens;
    /* Start values of the plan's params that no stage reads: checkpoints have
     * them, no engine does. */
    void **kept;
};

/* Between two plans. Start values come from the engine that is there, and from
 * the file. */
struct change {
    const struct pst_engine *from;
    struct pst_plan *before; /* its plan */
    struct pst_model *old, *module, *model;
    int file; /* -1: none */
    struct pstd_swap *swap;
};

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the file ------------------------------------------------------------- */

static enum pst_status send_pieces(struct pstd_session *s,
                                   const struct pst_file *file, uint64_t size,
                                   int fd, struct pst_diag *diag)
{
    char *piece = pst_alloc(PST_TAG_DAEMON, PIECE);
    enum pst_status status =
        piece != NULL ? PST_OK : pst_diag_nomem(diag, PIECE);
    enum pst_status mine = PST_OK;
    struct pst_diag why;

    status = pstd_agree(s->w, status, diag);
    /* Who cannot go on takes part until all has been sent. */
    for (uint64_t at = 0; at < size && status == PST_OK; at += PIECE) {
        const size_t n = (size_t)PST_MIN(size - at, (uint64_t)PIECE);

        if (s->w->rank == 0 && mine == PST_OK)
            mine = pst_file_read_at(file, at, piece, n, &why);
        status = pstd_broadcast(s->w, piece, n, diag);
        if (s->w->rank != 0 && mine == PST_OK && status == PST_OK &&
            pwrite(fd, piece, n, (off_t)at) != (ssize_t)n)
            mine = pst_diag_errno(&why, errno, "the new module's file");
    }
    pst_free(piece);
    if (mine != PST_OK)
        *diag = why;
    return status == PST_OK ? pstd_agree(s->w, mine, diag) : status;
}

/* COLLECTIVE. The file's path on this rank: rank 0's own, or one that only this
 * process sees. */
static enum pst_status get_file(struct pstd_session *s, struct change *x,
                                const char *path, char local[64],
                                struct pst_diag *diag)
{
    struct pst_file file = {0};
    uint64_t size = 0;
    enum pst_status status = PST_OK;

    if (s->w->rank == 0)
        status = pst_file_open(path, &file, diag);
    if (status == PST_OK && s->w->rank == 0 && file.size > MAX_FILE)
        status = pst_diag_set(diag, PST_ERR_INPUT, "%s is too large", path);
    if (s->w->rank != 0) {
        x->file = memfd_create("module.pt2", MFD_CLOEXEC);
        if (x->file < 0)
            status = pst_diag_errno(diag, errno, "the new module's file");
        else
            (void)snprintf(local, 64, "/proc/self/fd/%d", x->file);
    }
    status = pstd_agree(s->w, status, diag);
    size = file.size;
    if (status == PST_OK && s->w->size > 1)
        status = pstd_broadcast(s->w, &size, sizeof(size), diag);
    if (status == PST_OK && s->w->size > 1)
        status = send_pieces(s, &file, size, x->file, diag);
    if (s->w->rank == 0)
        pst_file_close(&file);
    return status;
}

/* --- the new plan and its engine ------------------------------------------ */

static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    const struct change *x = ctx;
    enum pst_status status = pst_engine_read_param(x->from, i, dst, diag);

    return status == PST_ERR_NOT_FOUND
               ? pst_plan_read_param(x->before, i, dst, diag)
               : status;
}

static enum pst_status read_kept(void *ctx, unsigned i, void *dst,
                                 struct pst_diag *diag)
{
    const struct pstd_swap *swap = ctx;

    if (swap->kept[i] == NULL)
        return pst_diag_set(diag, PST_ERR_INTERNAL,
                            "start values of \"%s\" are gone",
                            swap->plan->params.at[i].fqn);
    memcpy(dst, swap->kept[i], pst_meta_bytes(&swap->plan->params.at[i].meta));
    return PST_OK;
}

/* From here on the plan needs neither models nor the old engine. */
static enum pst_status keep_unread(struct pstd_swap *swap,
                                   struct pst_diag *diag)
{
    struct pst_plan *plan = swap->plan;
    enum pst_status status = PST_OK;

    swap->kept = pst_calloc(PST_TAG_DAEMON, plan->params.n + 1, sizeof(void *));
    if (swap->kept == NULL)
        return pst_diag_nomem(diag, plan->params.n * sizeof(void *));
    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const size_t bytes = pst_meta_bytes(&plan->params.at[i].meta);

        if (plan->params.at[i].n_stages > 0)
            continue;
        swap->kept[i] = pst_alloc(PST_TAG_DAEMON, PST_MAX(bytes, (size_t)1));
        status = swap->kept[i] == NULL
                     ? pst_diag_nomem(diag, bytes)
                     : pst_plan_read_param(plan, i, swap->kept[i], diag);
    }
    plan->model = NULL;
    plan->read = read_kept;
    plan->read_ctx = swap;
    return status;
}

const struct pst_batch *pstd_swap_batch(const struct pstd_swap *swap)
{
    return &swap->batch;
}

static const struct pst_batch *batch_of(const struct pstd_executor *w)
{
    return w->swap != NULL ? &w->swap->batch : &w->batch;
}

static enum pst_status make_plan(struct pstd_session *s, struct change *x,
                                 const struct pstd_swap_order *order,
                                 const char *path, struct pst_diag *diag)
{
    const struct pst_batch *from = batch_of(s->w);
    struct pstd_swap *swap = x->swap;
    struct pst_replacement what = {
        .path = order->module, .call = order->call, .aliases = order->aliases};
    enum pst_status status = pst_model_open(path, &x->module, diag);

    x->before = from->plan;
    if (status == PST_OK)
        status = pst_plan_model(from->plan, read_start, x, &x->old, diag);
    what.module = x->module;
    if (status == PST_OK)
        status = pst_model_replace(x->old, &what, &x->model, diag);
    if (status == PST_OK)
        status = pst_split_again(x->model, from->plan, &swap->plan, diag);
    if (status != PST_OK)
        return status;
    memcpy(swap->plan->base_digest, s->w->plan->model_digest,
           sizeof(swap->plan->base_digest));
    swap->batch = (struct pst_batch){.plan = swap->plan,
                                     .microbatches = from->microbatches,
                                     .n_tail = from->n_tail};
    if (from->tail != NULL)
        status = pst_plan_bind(swap->plan, pst_plan_rows(from->tail),
                               &swap->batch.tail, diag);
    return status;
}

static enum pst_status make_tokens(struct pstd_session *s,
                                   struct pstd_swap *swap,
                                   struct pst_exec_options *options,
                                   struct pst_diag *diag)
{
    const struct pst_batch *b = &swap->batch;
    enum pst_status status;

    if (options->weigh == NULL)
        return PST_OK;
    status = pst_tokens_new(b->plan, b->tail, b->microbatches, b->n_tail,
                            pst_data_fill, s->data, &swap->tokens, diag);
    options->weigh_ctx = swap->tokens;
    return status;
}

static bool is_fresh(void *ctx, const char *fqn)
{
    const struct change *x = ctx;
    const struct pst_weight *w = pst_model_weight(x->model, fqn);

    return w != NULL && w->home == x->module;
}

static bool never(void *ctx, const char *fqn)
{
    (void)ctx, (void)fqn;
    return false;
}

/* COLLECTIVE. */
static enum pst_status prepare(struct pstd_session *s, struct change *x,
                               const struct pstd_swap_order *order,
                               struct pst_engine **ret, struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    struct pst_exec_options options = s->options;
    char local[64] = "";
    enum pst_status status = get_file(s, x, order->path, local, diag);

    if (status != PST_OK)
        return status;
    status = make_plan(s, x, order, w->rank == 0 ? order->path : local, diag);
    if (status == PST_OK) {
        pstd_set_batch(&options, &x->swap->batch);
        status = make_tokens(s, x->swap, &options, diag);
    }
    status = pstd_agree(w, status, diag);
    if (status != PST_OK)
        return status;
    status =
        pst_engine_new(x->swap->batch.plan, w->transport, &options, ret, diag);
    status = pstd_agree(w, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_engine_adopt(*ret, w->engine, order->keep ? never : is_fresh,
                              x, diag);
    if (status == PST_OK)
        status = keep_unread(x->swap, diag);
    status = pstd_agree(w, status, diag);
    if (status == PST_OK)
        s->options = options;
    return status;
}

void pstd_swap_free(struct pstd_swap *swap)
{
    if (swap == NULL)
        return;
    pst_tokens_free(swap->tokens);
    pst_batch_fini(&swap->batch);
    for (size_t i = 0; swap->kept != NULL && i < swap->plan->params.n; i++)
        pst_free(swap->kept[i]);
    pst_free(swap->kept);
    pst_plan_free(swap->plan);
    pst_carried_close(swap->carried);
    pst_free(swap);
}

/* --- what becomes of it --------------------------------------------------- */

static unsigned count_calls(const struct change *x, const char *path)
{
    const struct pst_graph *graph = x->model->graph;
    unsigned n = 0;

    for (size_t i = 0; i < graph->calls.n; i++)
        n += strcmp(graph->calls.at[i]->path, path) == 0;
    return n;
}

static void tell_done(struct pstd_session *s, const struct change *x,
                      const struct pstd_swap_order *order, double seconds)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_SWAPPED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "module", order->module);
    pstd_note_int(&note, "calls",
                  order->call >= 0 ? 1
                                   : (int64_t)count_calls(x, order->module));
    pstd_note_real(&note, "seconds", seconds);
    pstd_note_text(&note, "digest", x->swap->plan->digest);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void tell_refused(struct pstd_session *s,
                         const struct pstd_swap_order *order,
                         const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_SWAP_REFUSED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "module", order->module);
    pstd_note_text(&note, "status", pst_status_name(diag->status));
    pstd_note_text(&note, "text", diag->text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void take_over(struct pstd_session *s, const struct change *x,
                      struct pst_engine *engine)
{
    pst_engine_free(s->w->engine);
    pstd_swap_free(s->w->swap);
    s->w->engine = engine;
    s->w->swap = x->swap;
}

static void end_change(struct change *x)
{
    pst_model_close(x->model);
    pst_model_close(x->module);
    pst_model_close(x->old);
    if (x->file >= 0)
        (void)close(x->file);
}

static enum pst_status swap(struct pstd_session *s,
                            const struct pstd_swap_order *order,
                            struct pst_diag *diag)
{
    const double begin = now_s();
    struct change x = {.from = s->w->engine, .file = -1};
    struct pst_engine *engine = NULL;
    enum pst_status status = PST_OK;

    x.swap = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*x.swap));
    if (x.swap == NULL)
        status = pst_diag_nomem(diag, sizeof(*x.swap));
    status = pstd_agree(s->w, status, diag);
    if (status == PST_OK)
        status = prepare(s, &x, order, &engine, diag);
    if (status == PST_OK) {
        take_over(s, &x, engine);
        tell_done(s, &x, order, now_s() - begin);
    } else {
        pst_engine_free(engine);
        pstd_swap_free(x.swap);
        if (status != PST_ERR_PEER)
            tell_refused(s, order, diag);
    }
    end_change(&x);
    return status == PST_ERR_PEER ? status : PST_OK;
}

/* --- resuming ------------------------------------------------------------- */

/* Which checkpoint a run goes on from, as rank 0 sees it; plain bytes. */
struct found {
    uint64_t step;
    uint32_t any, fallback;
};

/* Of the newer folder. A checkpoint with a plan of its own is read whole, as it
 * will be when it is loaded: that must not take an older one. If there is none
 * that can be read, whoever loads says so. */
static struct found find(const struct pstd_session *s)
{
    const char *const dirs[] = {s->config.checkpoint,
                                s->config.checkpoint_fallback};
    struct found found = {0};
    bool first = true;

    for (unsigned i = 0; i < PST_COUNT(dirs); i++) {
        struct pst_checkpoint_query query = {
            .dir = dirs[i],
            .step = s->config.resume.step > 0 ? s->config.resume.step
                                              : PST_CHECKPOINT_LATEST};
        struct pst_checkpoint *ckpt;

        if (dirs[i] == NULL ||
            pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
            continue;
        if (pst_carried_is_in(ckpt)) {
            pst_checkpoint_close(ckpt);
            query.verify = true;
            if (pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
                continue;
        }
        if (first || ckpt->info.step > found.step)
            found = (struct found){.step = ckpt->info.step,
                                   .any = pst_carried_is_in(ckpt),
                                   .fallback = i};
        first = false;
        pst_checkpoint_close(ckpt);
    }
    return found;
}

static enum pst_status restore(struct pstd_session *s, struct pstd_swap *swap,
                               const struct found *found, struct pst_diag *diag)
{
    enum pst_status status = pst_carried_open(
        s->w->plan,
        found->fallback ? s->config.checkpoint_fallback : s->config.checkpoint,
        found->step, &swap->carried, diag);

    if (status == PST_OK && swap->carried != NULL)
        status = pstd_open_batch(&s->config, swap->carried->plan, &swap->batch,
                                 diag);
    return status;
}

enum pst_status pstd_session_restore(struct pstd_session *s,
                                     struct pst_diag *diag)
{
    struct found found = {0};
    struct pstd_swap *swap;
    enum pst_status status = PST_OK;

    if (!s->config.resume.on)
        return PST_OK;
    if (s->w->rank == 0)
        found = find(s);
    if (s->w->size > 1)
        status = pstd_broadcast(s->w, &found, sizeof(found), diag);
    if (status != PST_OK || !found.any)
        return status;
    swap = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*swap));
    status = swap == NULL ? pst_diag_nomem(diag, sizeof(*swap)) : PST_OK;
    if (swap != NULL) {
        status = restore(s, swap, &found, diag);
    }
    status = pstd_agree(s->w, status, diag);
    if (status == PST_OK && swap->carried != NULL) {
        pst_engine_free(s->w->engine);
        s->w->engine = NULL;
        s->w->swap = swap;
        return PST_OK;
    }
    pstd_swap_free(swap);
    return status;
}

/* --- while it runs -------------------------------------------------------- */

enum pst_status pstd_session_swap(struct pstd_session *s,
                                  const struct pstd_order *order,
                                  struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_enter(PST_ALIVE_LOAD);
    struct pstd_swap_order o = {.call = -1};
    enum pst_status status;

    pstd_swap_order_read(order->data, &o);
    status = swap(s, &o, diag);
    pst_alive_leave(before);
    return status;
}
