// SPDX-License-Identifier: Apache-2.0
/* Prepares a run before its first step: options, data, engine, state. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/model/doubts.h"
#include "daemon/common/setup.h"
#include "daemon/exec/alike.h"
#include "daemon/exec/change/change.h"
#include "daemon/exec/change/ramp.h"
#include "daemon/exec/eval/evaluate.h"
#include "daemon/exec/peak.h"
#include "daemon/exec/session.h"
#include "stages/base/alloc.h"
#include "stages/compile/hosted.h"
#include "stages/ops/rates/rates.h"
#include "stages/run/data/tokens.h"
#include "stages/run/watch/flight.h"

static enum pst_status check_policies(const struct pstd_config *c,
                                      struct pst_diag *diag)
{
    const bool spikes = strcmp(c->on_spike, "none") != 0;
    const bool nan_ends = strcmp(c->on_nan, "stop") == 0;
    const bool spike_ends = !spikes || strcmp(c->on_spike, "stop") == 0;
    const bool spike_back = pst_has_prefix(c->on_spike, "rollback");

    if (nan_ends && spike_ends && PSTD_GIVEN(c, nan_limit))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--nan-limit needs --on-nan or --on-spike, skip or "
                            "rollback: without them the run ends before the "
                            "first such step");
    if (!spikes &&
        (PSTD_GIVEN(c, spike_window) || PSTD_GIVEN(c, spike_threshold)))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--%s needs --on-spike stop, skip or rollback",
                            PSTD_GIVEN(c, spike_window) ? "spike-window"
                                                        : "spike-threshold");
    if ((spike_back || strcmp(c->on_nan, "rollback") == 0) &&
        (c->checkpoint == NULL || (!pstd_every_is_set(&c->checkpoint_every) &&
                                   !(c->checkpoint_cost > 0))))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--%s rollback goes back to a checkpoint: it "
                            "needs --checkpoint DIR and --checkpoint-every N "
                            "or --checkpoint-cost X",
                            spike_back ? "on-spike" : "on-nan");
    return PST_OK;
}

enum pst_status pstd_session_check(const struct pstd_config *c,
                                   struct pst_diag *diag)
{
    const char *needs = c->resume.on                     ? "resume"
                        : c->adopt                       ? "adopt"
                        : c->checkpoint_fallback != NULL ? "checkpoint-fallback"
                        : c->checkpoint_cost > 0         ? "checkpoint-cost"
                        : pstd_every_is_set(&c->checkpoint_every)
                            ? "checkpoint-every"
                        : c->checkpoint_sync              ? "checkpoint-sync"
                        : PSTD_GIVEN(c, checkpoint_retry) ? "checkpoint-retry"
                        : PSTD_GIVEN(c, keep)             ? "keep"
                                                          : NULL;

    if (needs != NULL && c->checkpoint == NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--%s needs --checkpoint DIR", needs);
    if (pstd_every_is_set(&c->checkpoint_every) && c->checkpoint_cost > 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--checkpoint-every and --checkpoint-cost both say "
                            "when to save: give one of them");
    return check_policies(c, diag);
}

/* Makes the options of the run: the daemon's own, changed by those of the
 * order, "name\0value\0...". */
static enum pst_status read_options(struct pstd_session *s,
                                    const struct pstd_order *order,
                                    struct pst_diag *diag)
{
    enum pst_status status =
        pstd_config_copy(&s->config, pstd_mailbox_config(s->w->mailbox), diag);

    if (status == PST_OK)
        status = pstd_config_set_all(&s->config, PSTD_OPT_TRAIN, order->data,
                                     order->size, diag);
    if (status != PST_OK)
        return status;
    pst_alive_set_limit(pstd_watchdog(&s->config));
    /* Checked only at the start: `penstock set` may set --steps of a run with
     * --epochs. */
    if (!isnan(s->config.epochs) && PSTD_GIVEN(&s->config, steps))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--steps and --epochs both say how long the run "
                            "is: give one of them");
    status = pstd_session_check(&s->config, diag);
    if (status == PST_OK)
        status = pstd_eval_check(&s->config, diag);
    if (status == PST_OK)
        status = pstd_check_outputs(&s->config, diag);
    if (status == PST_OK && s->w->rank == 0)
        status = pstd_check_log_dir(&s->config, diag);
    if (status != PST_OK)
        return status;
    status =
        pstd_exec_options(&s->config, s->w->ranks / pstd_replicas(&s->config),
                          true, &s->options, diag);
    pstd_set_device(s->w, &s->options);
    pstd_ramp_prepare(s);
    return status;
}

/* Adds the options that the engine depends on and that are the same on all
 * ranks, and the number of steps if the learning rate falls until the last
 * step. */
static void add_engine_options(const struct pstd_session *s,
                               struct pst_str *key)
{
    const struct pst_optim_options *optim = &s->options.optim;

    pstd_config_dump(&s->config, PSTD_OPT_STEP, key);
    pst_str_addf(key, "outputs=%d\ntotal-steps=%llu\n", s->options.keep_outputs,
                 pst_lr_row(optim->lr_schedule)->to_end
                     ? (unsigned long long)optim->total_steps
                     : 0);
    for (unsigned i = 0; i < s->n_counts; i++)
        pst_str_addf(key, "count=%u\n", s->counts[i]);
}

enum pst_status pstd_session_record_key(struct pstd_session *s,
                                        struct pst_diag *diag)
{
    struct pst_str key = {0};

    add_engine_options(s, &key);
    if (key.failed) {
        pst_str_fini(&key);
        return pst_diag_nomem(diag, sizeof(key));
    }
    pst_free(s->w->engine_options);
    s->w->engine_options = key.text;
    return PST_OK;
}

/* Keeps the engine of the last run (*ret) if it was made with the same options;
 * frees it otherwise. Call only for a resume, which loads all values that steps
 * change. */
static enum pst_status keep_engine(struct pstd_session *s, bool *ret,
                                   struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    struct pst_str key = {0};
    enum pst_status status = PST_OK;

    add_engine_options(s, &key);
    if (key.failed) {
        const size_t len = key.len;

        pst_str_fini(&key);
        return pst_diag_nomem(diag, len);
    }
    *ret = w->engine != NULL && s->config.resume.on && w->changed == NULL &&
           !pstd_needs_epochs(&s->config) &&
           strcmp(w->engine_options, key.text) == 0;
    if (*ret) {
        pst_str_fini(&key);
        pst_engine_set_watchdog(w->engine, s->options.watchdog);
    } else {
        pst_engine_free(w->engine);
        w->engine = NULL;
        pst_batch_fini(&w->batch);
        pst_free(w->engine_options);
        w->engine_options = key.text;
        status = pstd_open_batch(&s->config, w->plan, &w->batch, diag);
    }
    /* A run begins with the first number of microbatches of its ramp, whatever
     * an earlier run used. */
    if (status == PST_OK)
        w->batch.microbatches = s->counts[0];
    if (status == PST_OK && w->changed != NULL)
        pstd_changed_set_microbatches(w->changed, s->counts[0]);
    return status;
}

static void emit_no_flight(struct pstd_session *s, unsigned rank,
                           const struct pst_diag *why)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_FLIGHT_MISSING);
    pstd_note_int(&note, "of_rank", rank);
    pstd_note_error(&note, why);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_session_check_flights(struct pstd_session *s)
{
    for (unsigned i = 0; s->w->flights != NULL && i < s->w->ranks; i++) {
        PST_UNINIT struct pst_diag why; /* each step gets here */

        if (!pst_flight_is_lost(s->w->flights[i]))
            continue;
        (void)pst_diag_set(&why, PST_E_RECORD_DAMAGED,
                           "rank-%u" PST_FLIGHT_SUFFIX
                           " was cut short by another process; what this rank "
                           "does is recorded again from its next start on",
                           i);
        emit_no_flight(s, i, &why);
    }
}

/* Opens the flight recorders beside the logs: files with the last actions of
 * each local rank, which later runs use, too. If there is no disk space, the
 * job continues without them. */
static enum pst_status open_flights(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    const char *dir = pstd_mailbox_config(w->mailbox)->log_dir;
    struct pst_diag why;

    if (dir == NULL || w->flights != NULL)
        return PST_OK;
    w->flights = pst_calloc(PST_TAG_DAEMON, w->ranks, sizeof(*w->flights));
    if (w->flights == NULL)
        return pst_diag_nomem(diag, w->ranks * sizeof(*w->flights));
    for (unsigned i = 0; i < w->ranks; i++)
        if ((w->size == 1 || i == w->rank) &&
            pst_flight_open(dir, i, w->ranks, &w->flights[i], &why) != PST_OK)
            emit_no_flight(s, i, &why);
    return PST_OK;
}

static enum pst_status make_engine(struct pstd_session *s,
                                   struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    const struct pst_batch *b =
        w->changed != NULL ? pstd_changed_batch(w->changed) : &w->batch;
    enum pst_status status;

    s->batch = b;
    if (w->engine != NULL)
        return pst_engine_set_microbatches(w->engine, s->counts[0], diag);
    status = pstd_agree_status(w, open_flights(s, diag), diag);
    if (status != PST_OK)
        return status;
    s->options.flights = w->flights;
    pstd_set_batch(&s->options, b);
    status = pstd_set_side_by_side(b->plan, &s->options, diag);
    if (status != PST_OK)
        return status;
    if (strcmp(s->config.microbatch_weights, "tokens") == 0) {
        status = pst_tokens_new(b->plan, b->tail, b->microbatches, b->n_tail,
                                pst_data_fill, s->data, &s->tokens, diag);
        if (status != PST_OK)
            return status;
        s->options.weigh = pst_tokens_weigh;
        s->options.weigh_ctx = s->tokens;
    }
    return pst_engine_new(b->plan, w->transport, &s->options, &w->engine, diag);
}

static enum pst_status make_rings(struct pstd_session *s, struct pst_diag *diag)
{
    s->result->losses =
        pst_calloc(PST_TAG_DAEMON, PSTD_MAX_LOSSES, sizeof(double));
    s->times = pst_calloc(PST_TAG_DAEMON, PSTD_MAX_LOSSES, sizeof(double));
    if (s->result->losses == NULL || s->times == NULL)
        return pst_diag_nomem(diag, PSTD_MAX_LOSSES * sizeof(double));
    return PST_OK;
}

/* Returns the dtype of matmul operands; "bf16-in-f32": they are rounded to bf16
 * and multiplied in f32; "tf32": those of f32 are rounded to TF32. */
static const char *matmul_dtype(const struct pstd_config *c)
{
    if (strcmp(c->dtype, "bf16") == 0 && !pst_rates_use_bf16())
        return "bf16-in-f32";
    return c->tf32 && strcmp(c->dtype, "f32") == 0 ? "tf32" : c->dtype;
}

/* Adds the schedule: with --schedule auto as "auto:zb-h1", or as "auto" if a
 * search has made it. */
static void add_schedule(struct pstd_note *note, const char *asked,
                         const char *name)
{
    struct pst_str text = {0};

    pst_str_add(&text, asked);
    if (strcmp(asked, "auto") == 0 && strcmp(name, asked) != 0)
        pst_str_addf(&text, ":%s", name);
    pstd_note_text(note, "schedule", pst_str_text(&text));
    pst_str_fini(&text);
}

/* Reports the reserved memory by purpose, for each local rank. */
static void emit_memory(struct pstd_session *s)
{
    struct pstd_executor *w = s->w;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine); i++) {
        const struct pst_memory m = pst_engine_memory(w->engine, i);
        const unsigned rank = w->size == 1 ? i : w->rank;
        struct pst_str placement = {0}, stages = {0};
        struct pstd_note note;

        pstd_print_placement(pst_engine_schedule(w->engine), &placement);
        pstd_print_stages(pst_str_text(&placement), rank, &stages);
        pstd_note_init(&note, PSTD_EVENT_MEMORY);
        pstd_note_int(&note, "of_rank", rank);
        pstd_note_text(&note, "stages", pst_str_text(&stages));
        pstd_note_int(&note, "arena", (int64_t)m.arena);
        pstd_note_int(&note, "params", (int64_t)m.params);
        pstd_note_int(&note, "grads", (int64_t)m.grads);
        pstd_note_int(&note, "optim", (int64_t)m.optim);
        pstd_note_int(&note, "buffers", (int64_t)m.buffers);
        pstd_note_int(&note, "gathered", (int64_t)m.gathered);
        pstd_note_int(&note, "prepared", (int64_t)m.prepared);
        pstd_note_int(&note, "stash", (int64_t)m.stash);
        pstd_note_int(&note, "messages", (int64_t)m.messages);
        pstd_note_int(&note, "workspace", (int64_t)m.workspace);
        pstd_note_int(&note, "outputs", (int64_t)m.outputs);
        pstd_mailbox_post(w->mailbox, &note, true);
        pst_str_fini(&placement);
        pst_str_fini(&stages);
    }
}

/* Reports what the kernel threads of each local rank are bound to. */
static void emit_processors(struct pstd_session *s)
{
    struct pstd_executor *w = s->w;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine); i++) {
        unsigned n;
        const unsigned *at = pst_engine_processors(w->engine, i, &n);
        struct pst_str text = {0};
        struct pstd_note note;

        for (unsigned k = 0; at != NULL && k < n; k++)
            pst_str_addf(&text, k > 0 ? ",%u" : "%u", at[k]);
        if (text.len > 0) {
            pstd_note_init(&note, PSTD_EVENT_BOUND);
            pstd_note_int(&note, "of_rank", w->size == 1 ? i : w->rank);
            pstd_note_text(&note, "processors", pst_str_text(&text));
            pstd_mailbox_post(w->mailbox, &note, true);
        }
        pst_str_fini(&text);
    }
}

/* Warns of operators for which the device of a local rank has no kernel, so
 * that they run on the host. If memory runs out, only the first operators are
 * reported. */
static void emit_hosted(struct pstd_session *s)
{
    struct pstd_executor *w = s->w;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine); i++) {
        const unsigned rank = w->size == 1 ? i : w->rank;
        struct pst_hosted_list list = {0};
        struct pst_str text = {0};
        struct pstd_note note;
        struct pst_diag ignored;
        const enum pst_status status =
            pst_engine_list_hosted(w->engine, i, &list, &ignored);

        (void)status;
        if (list.all.n > 0) {
            pst_str_addf(&text,
                         "rank %u: the device %s has no kernel for these calls "
                         "of each microbatch, which run on the host: ",
                         rank, w->device->name);
            pst_hosted_print(&list, &text);
            pstd_note_init(&note, PSTD_EVENT_HOSTED);
            pstd_note_int(&note, "of_rank", rank);
            pstd_note_text(&note, "device", w->device->name);
            pstd_note_int(&note, "calls", pst_hosted_calls(&list));
            pstd_note_int(&note, "bytes", (int64_t)pst_hosted_bytes(&list));
            pstd_note_text(&note, "text", pst_str_text(&text));
            pstd_mailbox_post(w->mailbox, &note, true);
        }
        pst_str_fini(&text);
        pst_hosted_fini(&list);
    }
}

/* Reports how messages of each local rank travel, if its memory is not the
 * host's. */
static void emit_peers(struct pstd_session *s)
{
    struct pstd_executor *w = s->w;
    const unsigned n = w->ranks;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine) && n > 1; i++) {
        struct pstd_note note;
        const char *why;

        if (w->device->space == PST_SPACE_HOST)
            continue;
        pstd_note_init(&note, PSTD_EVENT_PEERS);
        pstd_note_int(&note, "of_rank", w->size == 1 ? i : w->rank);
        pstd_note_int(&note, "direct", pst_engine_peers(w->engine, i, &why));
        pstd_note_int(&note, "of", n - 1);
        if (why[0] != '\0')
            pstd_note_text(&note, "why", why);
        pstd_mailbox_post(w->mailbox, &note, true);
    }
}

/* Adds the options that the run was given. */
static void add_options(const struct pstd_session *s, struct pstd_note *note)
{
    enum { MOST = 1500 }; /* maximum bytes; the other fields must fit, too */
    struct pst_str all = {0}, text = {0};

    pstd_config_given_text(&s->config, PSTD_OPT_TRAIN | PSTD_OPT_RANKS, &all);
    pst_str_addf(&text, "%.*s%s", MOST, pst_str_text(&all),
                 all.len > MOST ? "..." : "");
    pstd_note_text(note, "options", pst_str_text(&text));
    pst_str_fini(&all);
    pst_str_fini(&text);
}

static void emit_begin(struct pstd_session *s)
{
    const struct pstd_config *c = &s->config;
    struct pst_str placement = {0}, ramp = {0};
    struct pstd_note note;

    pstd_print_placement(pst_engine_schedule(s->w->engine), &placement);
    pstd_note_init(&note, PSTD_EVENT_TRAIN_BEGIN);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "first_step", (int64_t)s->step);
    pstd_note_int(&note, "steps", (int64_t)c->steps);
    add_schedule(&note, c->schedule, pst_engine_schedule(s->w->engine)->name);
    pstd_note_int(&note, "microbatches", s->w->batch.microbatches);
    if (c->microbatches.n > 1) {
        pstd_ramp_print(&c->microbatches, &ramp);
        pstd_note_text(&note, "ramp", pst_str_text(&ramp));
        pst_str_fini(&ramp);
    }
    pstd_note_text(&note, "recompute", pst_engine_recompute(s->w->engine));
    pstd_note_text(&note, "shard",
                   pst_engine_shard(s->w->engine) != PST_SHARING_NONE &&
                           strcmp(c->shard, "auto") != 0
                       ? c->shard
                       : pst_sharing_word(pst_engine_shard(s->w->engine)));
    pstd_note_text(&note, "stash", pst_engine_stash_place(s->w->engine));
    pstd_note_text(&note, "dtype", matmul_dtype(c));
    pstd_note_text(&note, "optimizer", c->optimizer);
    pstd_note_text(&note, "placement", pst_str_text(&placement));
    pstd_note_int(&note, "planned_bytes",
                  (int64_t)pstd_planned_bytes(s->w->engine));
    pstd_note_text(&note, "checkpoint",
                   c->checkpoint != NULL ? c->checkpoint : "");
    if (s->epoch_rows > 0) {
        pstd_note_real(&note, "epochs", c->epochs);
        pstd_note_int(&note, "epoch_rows", (int64_t)s->epoch_rows);
    }
    add_options(s, &note);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&placement);
}

void pstd_session_emit_doubt(void *ctx, const char *text)
{
    struct pstd_session *s = ctx;
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_DOUBT);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* COLLECTIVE. Checks the folders of files that the run writes later. A resume
 * only warns, since it may be a restart of a job that nobody watches. */
static enum pst_status check_folders(struct pstd_session *s,
                                     struct pst_diag *diag)
{
    enum pst_status status =
        s->w->rank == 0 ? pstd_check_folders(&s->config, diag) : PST_OK;

    if (status == PST_ERR_IO && s->config.resume.on) {
        pstd_session_emit_doubt(s, diag->text);
        status = PST_OK;
    }
    return pstd_agree_status(s->w, status, diag);
}

/* Warns of data and models that are probably not as intended; on rank 0, which
 * always has the data. */
static void find_doubts(struct pstd_session *s)
{
    if (s->w->rank != 0)
        return;
    pstd_doubts_check_plan(&s->config, s->batch->plan, pstd_session_emit_doubt,
                           s);
    pstd_doubts_check_data(&s->config, s->config.data, s->batch, s->data,
                           (uint64_t)pst_batch_rows(s->batch),
                           pstd_session_emit_doubt, s);
}

enum pst_status pstd_session_prepare(struct pstd_session *s,
                                     const struct pstd_order *order,
                                     struct pst_diag *diag)
{
    enum pst_status status = read_options(s, order, diag);
    bool kept;

    if (status == PST_OK)
        status = make_rings(s, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = pstd_share_rates(s->w, s->config.dtype, diag);
    if (status == PST_OK)
        status = pstd_session_find_checkpoint(s, diag);
    if (status == PST_OK)
        status = pstd_session_restore(s, diag);
    if (status == PST_OK)
        status = keep_engine(s, &kept, diag);
    if (status == PST_OK)
        s->step_tokens = pstd_count_tokens(&s->w->batch);
    if (status == PST_OK)
        status = pstd_check_backward(&s->config, s->w->batch.plan, diag);
    if (status == PST_OK && (s->w->rank == 0 || !s->options.scatter))
        status = pstd_open_data(&s->config, &s->w->batch, s->w->rank == 0,
                                &s->data, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && !s->options.scatter)
        status = pstd_compare_data(s->w, s->config.data, diag);
    if (status == PST_OK)
        status = pstd_session_count_epochs(s, diag);
    if (status != PST_OK)
        return status;
    status = pstd_agree_status(s->w, make_engine(s, diag), diag);
    if (status == PST_OK)
        status = pstd_peak(s, &s->peak, diag);
    if (status == PST_OK)
        status = pstd_eval_prepare(s, diag);
    if (status == PST_OK)
        status = check_folders(s, diag);
    /* From here on the folder of checkpoints changes. */
    if (status == PST_OK)
        status = pstd_session_claim(s, diag);
    if (status == PST_OK && s->w->rank == 0)
        pstd_course_make(s);
    if (status == PST_OK)
        status = pstd_session_resume(s, diag);
    if (status == PST_OK)
        status = pstd_eval_open(s, diag);
    if (status == PST_OK)
        status = pstd_session_begin_history(s, diag);
    if (status == PST_OK)
        find_doubts(s);
    if (status == PST_OK)
        emit_begin(s);
    if (status == PST_OK) {
        emit_memory(s);
        emit_processors(s);
        emit_hosted(s);
        emit_peers(s);
    }
    return status;
}
