// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/serve/serve.h"

#include <math.h>
#include <string.h>

#include "daemon/common/model/eval_model.h"
#include "daemon/common/setting.h"
#include "daemon/common/setup.h"
#include "daemon/exec/alike.h"
#include "daemon/exec/serve/batch.h"
#include "daemon/exec/serve/signature.h"
#include "daemon/exec/spread.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/pair.h"
#include "stages/run/state/carried.h"
#include "stages/split/convert/evaluate.h"

#define WAIT_MS 50 /* interval at which idle rank 0 polls the others */

struct serving {
    struct pstd_executor *w;
    const struct pstd_config *config;
    struct pst_carried *carried; /* plan from the checkpoint, or NULL */
    struct pst_plan *of;         /* plan from which `cut` was made; borrowed */
    struct pst_eval_cut cut;
    struct pstd_eval_model model; /* model of --eval-model, or empty */
    struct pstd_spread file;
    struct pst_batch batch;
    struct pst_engine *engine;
    uint64_t step;  /* step of the checkpoint */
    uint64_t made;  /* steps made so far */
    unsigned *kept; /* indices of the plan's outputs that are answered */
    size_t n_kept;
    /* Members of rank 0 only. */
    struct pstd_intake *intake;
    struct pstd_requests requests;
    void **outputs; /* values of the kept outputs, for a whole step */
};

/* Rank 0's message to the other ranks before each step, sent as bytes. */
struct head {
    uint32_t stop;
};

/* --- before the first request --------------------------------------------- */

static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    const struct serving *s = ctx;

    return pst_plan_read_param(s->of, i, dst, diag);
}

/* COLLECTIVE. Opens --eval-model, which may be visible only to rank 0. */
static enum pst_status open_model(struct serving *s, struct pst_diag *diag)
{
    enum pst_status status =
        pstd_spread_file(s->w, s->config->eval_model, &s->file, diag);

    if (status == PST_OK)
        status = pstd_eval_model_open(s->file.path, s->of,
                                      s->config->checkpoint != NULL &&
                                          s->config->use_ema,
                                      read_start, s, &s->model, &s->cut, diag);
    if (status != PST_OK)
        pstd_eval_model_prefix(s->config->eval_model, diag);
    return status;
}

static enum pst_status make_plan(struct serving *s, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    uint64_t step;

    /* The model may have been changed during the run of the checkpoint. */
    if (s->config->checkpoint != NULL)
        status = pst_carried_open_newest(s->w->plan, s->config->checkpoint,
                                         &step, &s->carried, diag);
    s->of = s->carried != NULL ? s->carried->plan : s->w->plan;
    if (s->config->eval_model != NULL) {
        status = pstd_agree_status(s->w, status, diag);
        if (status == PST_OK)
            status = open_model(s, diag);
    } else if (status == PST_OK) {
        status = pst_eval_cut_init(
            &s->cut, s->of, s->config->checkpoint != NULL && s->config->use_ema,
            read_start, s, diag);
    }
    if (status == PST_OK)
        status = pstd_refuse_ramp(s->config, "a served model", diag);
    if (status == PST_OK)
        status = pstd_open_batch(s->config, s->cut.plan, &s->batch, diag);
    if (status == PST_OK && s->batch.n_tail > 0)
        status = pst_diag_set(diag, PST_E_RUN_OPTIONS,
                              "--batch: microbatches of a served model are "
                              "alike: give a multiple of -m");
    return status;
}

static enum pst_status make_engine(struct serving *s, struct pst_diag *diag)
{
    const unsigned replicas = pstd_replicas(s->config);
    struct pst_exec_options options;
    enum pst_status status = pstd_exec_options(
        s->config, s->w->ranks / replicas, false, &options, diag);

    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = pstd_share_rates(s->w, s->config->dtype, diag);
    if (status != PST_OK)
        return status;
    pstd_set_device(s->w, &options);
    options.replicas = replicas;
    options.recompute = NULL;
    options.keep_outputs = true;
    options.scatter = true; /* only rank 0 has the requests */
    pstd_set_batch(&options, &s->batch);
    return pst_engine_new(s->batch.plan, s->w->transport, &options, &s->engine,
                          diag);
}

static void emit_skipped(void *ctx, const char *dir, uint64_t step,
                         const char *text)
{
    struct serving *s = ctx;
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_SKIPPED);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Rank 0: reports that the run's --checkpoint-fallback, which `serve` does not
 * read, has or may have a later checkpoint. */
static void emit_second(struct serving *s, const char *dir,
                        const struct pst_checkpoint_info *info)
{
    struct pst_str text = {0};

    if (pst_checkpoint_describe_second(dir, info, true, &text))
        emit_skipped(s, dir, s->step, pst_str_text(&text));
    pst_str_fini(&text);
}

static void emit_plugin(void *ctx, const struct pstd_setting_change *change)
{
    const struct serving *s = ctx;

    pstd_emit_setting(s->w, s->step, change);
}

/* COLLECTIVE. Loads the newest checkpoint, if --checkpoint is given. */
static enum pst_status load_checkpoint(struct serving *s, struct pst_diag *diag)
{
    const struct pst_load_choice choice = {
        .dir = s->config->checkpoint,
        .step = PST_CHECKPOINT_LATEST,
        .any_model = s->config->other_model || s->config->eval_model != NULL,
        .averaged = s->config->use_ema,
        .skipped = emit_skipped,
        .ctx = s};
    struct pst_checkpoint_info info = {0};
    enum pst_status status;

    if (choice.dir == NULL)
        return PST_OK;
    status = pst_engine_load(s->engine, &choice, &info, NULL, diag);
    if (status == PST_OK)
        s->step = info.step;
    if (status == PST_OK && s->w->rank == 0) {
        emit_second(s, choice.dir, &info);
        pstd_setting_compare_plugins(s->cut.plan, info.options, emit_plugin, s);
    }
    return status;
}

/* Lists the outputs that are answered, in the same order on all ranks. */
static enum pst_status keep_outputs(struct serving *s,
                                    const struct pstd_signature *signature,
                                    struct pst_diag *diag)
{
    const size_t n = signature->n_outputs;

    s->kept = pst_calloc(PST_TAG_DAEMON, n, sizeof(*s->kept));
    if (s->kept == NULL)
        return pst_diag_nomem(diag, n * sizeof(*s->kept));
    s->n_kept = n;
    for (size_t k = 0; k < n; k++)
        s->kept[k] = signature->outputs[k].index;
    return PST_OK;
}

/* Rank 0: allocates memory for a step of requests, and opens the intake. */
static enum pst_status make_requests(struct serving *s,
                                     struct pstd_signature *signature,
                                     struct pst_diag *diag)
{
    const int64_t all = signature->samples * signature->microbatches;
    enum pst_status status;

    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    s->outputs = pst_calloc(PST_TAG_DAEMON, s->n_kept, sizeof(*s->outputs));
    if (s->outputs == NULL)
        return pst_diag_nomem(diag, s->n_kept * sizeof(void *));
    for (size_t k = 0; k < s->n_kept; k++) {
        const size_t bytes = pstd_port_bytes(&signature->outputs[k], all);

        s->outputs[k] = pst_alloc(PST_TAG_DAEMON, bytes + 1);
        if (s->outputs[k] == NULL)
            return pst_diag_nomem(diag, bytes);
    }
    signature->step = s->step;
    status = pstd_requests_init(&s->requests, signature, diag);
    if (status != PST_OK)
        return status;
    pstd_intake_open(s->intake, signature);
    s->requests.signature = pstd_intake_signature(s->intake);
    return PST_OK;
}

static void emit_begin(struct serving *s)
{
    const struct pstd_config *c = s->config;
    struct pst_str placement = {0};
    struct pstd_note note;

    pstd_print_placement(pst_engine_schedule(s->engine), &placement);
    pstd_note_init(&note, PSTD_EVENT_SERVE_BEGIN);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_int(&note, "microbatches", s->batch.microbatches);
    pstd_note_int(&note, "rows", pst_plan_rows(s->batch.plan));
    pstd_note_int(&note, "most",
                  s->w->rank == 0 ? s->requests.signature->most : 0);
    pstd_note_int(&note, "queue", (int64_t)c->queue);
    pstd_note_real(&note, "batch_wait_ms", c->batch_wait);
    pstd_note_text(&note, "placement", pst_str_text(&placement));
    pstd_note_int(&note, "planned_bytes",
                  (int64_t)pstd_planned_bytes(s->engine));
    pstd_note_text(&note, "checkpoint",
                   c->checkpoint != NULL ? c->checkpoint : "");
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&placement);
}

/* COLLECTIVE. Does everything before the first request. */
static enum pst_status prepare_serving(struct serving *s, struct pst_diag *diag)
{
    struct pstd_signature signature = {0};
    enum pst_status status = make_plan(s, diag);

    if (status == PST_OK)
        status = pstd_signature_make(s->batch.plan, s->batch.microbatches,
                                     &signature, diag);
    if (status == PST_OK)
        status = keep_outputs(s, &signature, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = pstd_agree_status(s->w, make_engine(s, diag), diag);
    if (status == PST_OK)
        status = pstd_agree_status(s->w, load_checkpoint(s, diag), diag);
    if (status == PST_OK) {
        if (s->w->rank == 0)
            status = make_requests(s, &signature, diag);
        status = pstd_agree_status(s->w, status, diag);
    }
    pstd_signature_fini(&signature);
    return status;
}

/* --- one step ------------------------------------------------------------- */

/* True if the step has failed because of a value in a request, so that the job
 * can go on with other requests. */
static bool is_value_fault(enum pst_status status)
{
    return status == PST_ERR_RANGE || status == PST_ERR_INPUT;
}

/* COLLECTIVE. Runs a step for the requests that rank 0 has set, and copies the
 * outputs to them. */
static enum pst_status run_step(struct serving *s, struct pst_diag *diag)
{
    struct pst_step_result r = {0};
    enum pst_status status;

    (void)pst_alive_begin_phase(PST_ALIVE_STEP);
    status = pst_engine_step(s->engine, s->made++, pstd_requests_fill,
                             &s->requests, 0, &r, diag);
    for (size_t k = 0; k < s->n_kept && status == PST_OK; k++) {
        void *dst = s->outputs != NULL ? s->outputs[k] : NULL;

        status = pst_engine_output(s->engine, s->kept[k], dst, diag);
        if (status == PST_OK && dst != NULL)
            pstd_requests_copy_output(&s->requests, k, dst);
    }
    return status;
}

/* --- the loop ------------------------------------------------------------- */

/* Rank 0: true if a stop was requested here or on another rank. */
static bool is_stopped(struct serving *s)
{
    const unsigned stops = pst_pulse_take_requests(s->w->pulse);

    /* Other ranks repeat their requests until the job ends: only the first one
     * is reported. */
    if (stops != 0 &&
        pstd_mailbox_peek_control(s->w->mailbox, PSTD_CTL_STOPS) == 0)
        pstd_emit_stop(s->w);
    if (stops != 0)
        pstd_mailbox_set_control(s->w->mailbox, stops);
    return pstd_mailbox_peek_control(s->w->mailbox, PSTD_CTL_STOPS) != 0;
}

static enum pst_status share_head(struct serving *s, struct head *head,
                                  struct pst_diag *diag)
{
    return pstd_broadcast(s->w, head, sizeof(*head), diag);
}

/* Fails all requests of a list with the same error. */
static void fail_requests(struct serving *s, struct pstd_ask *list,
                          const struct pst_diag *why)
{
    for (struct pstd_ask *a = list; a != NULL; a = a->next)
        a->diag = *why;
    pstd_intake_put_answers(s->intake, list);
}

static void fail_lost(struct serving *s, struct pstd_ask *list)
{
    struct pst_diag why;

    (void)pst_diag_set(&why, PST_E_SERVE_LOST,
                       "the job lost a rank before it answered; ask again");
    fail_requests(s, list, &why);
}

/* Runs one step for the list and passes the list back to the intake. If a value
 * in a request makes the step fail, sets *ret_fault instead, and the caller
 * keeps the list. */
static enum pst_status try_step(struct serving *s, struct pstd_ask *list,
                                bool *ret_fault, struct pst_diag *diag)
{
    struct head head = {0};
    enum pst_status status;

    *ret_fault = false;
    pstd_requests_set(&s->requests, list);
    if (pstd_requests_reserve(&s->requests, diag) != PST_OK) {
        diag->status =
            PST_ERR_BUSY; /* out of memory for this request; the job goes on */
        fail_requests(s, list, diag);
        return PST_OK;
    }
    status = share_head(s, &head, diag);
    pstd_intake_count_step(s->intake);
    if (status == PST_OK)
        status = run_step(s, diag);
    if (is_value_fault(status)) {
        *ret_fault = true;
        return PST_OK;
    }
    if (status == PST_OK)
        pstd_intake_put_answers(s->intake, list);
    else
        fail_lost(s, list);
    return status;
}

/* Answers a list of requests. If a value makes the step fail, runs each request
 * alone, so that the others are still answered. */
static enum pst_status answer_requests(struct serving *s, struct pstd_ask *list,
                                       struct pst_diag *diag)
{
    const bool several = list->next != NULL;
    bool fault;
    enum pst_status status = try_step(s, list, &fault, diag);

    if (status != PST_OK || !fault)
        return status;
    if (!several) {
        fail_requests(s, list, diag);
        return PST_OK;
    }
    while (list != NULL && status == PST_OK) {
        struct pstd_ask *ask = list;

        list = ask->next;
        ask->next = NULL;
        status = try_step(s, ask, &fault, diag);
        if (status == PST_OK && fault)
            fail_requests(s, ask, diag);
    }
    if (list != NULL)
        fail_lost(s, list);
    return status;
}

/* Runs steps for requests until a stop, on rank 0. A normal stop answers the
 * accepted requests first; an immediate stop does not. */
static enum pst_status serve_first(struct serving *s, struct pst_diag *diag)
{
    const double batch_s = 1e-3 * s->config->batch_wait;
    struct head head = {.stop = 1};
    enum pst_status status = PST_OK;

    while (status == PST_OK) {
        const bool stopped = is_stopped(s);
        struct pstd_ask *list;

        if (stopped)
            pstd_intake_shut(s->intake,
                             pstd_mailbox_peek_control(s->w->mailbox,
                                                       PSTD_CTL_STOP_NOW) != 0);
        (void)pst_alive_begin_phase(PST_ALIVE_IDLE);
        list = pstd_intake_take(s->intake, WAIT_MS, batch_s);
        if (list != NULL)
            status = answer_requests(s, list, diag);
        else if (stopped)
            break;
        else
            status = pst_pulse_poll(s->w->pulse, 0, diag);
    }
    return status == PST_OK ? share_head(s, &head, diag) : status;
}

/* Runs steps until rank 0 reports a stop, on the other ranks. */
static enum pst_status serve_next(struct serving *s, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK) {
        struct head head = {0};

        (void)pst_alive_begin_phase(PST_ALIVE_IDLE);
        status = share_head(s, &head, diag);
        if (status == PST_OK && head.stop)
            break;
        if (status == PST_OK)
            status = run_step(s, diag);
        if (is_value_fault(status))
            status = PST_OK;
    }
    return status;
}

static void free_serving(struct serving *s)
{
    pst_engine_free(s->engine);
    s->w->engine = NULL;
    pst_batch_fini(&s->batch);
    pst_eval_cut_fini(&s->cut);
    pstd_eval_model_close(&s->model);
    pstd_spread_fini(&s->file);
    pst_carried_close(s->carried);
    pstd_requests_fini(&s->requests);
    for (size_t k = 0; k < s->n_kept && s->outputs != NULL; k++)
        pst_free(s->outputs[k]);
    pst_free(s->outputs);
    pst_free(s->kept);
    pst_free(s);
}

enum pst_status pstd_serve(struct pstd_executor *w, struct pst_diag *diag)
{
    struct serving *s = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*s));
    enum pst_status status;

    if (s == NULL)
        return pst_diag_nomem(diag, sizeof(*s));
    s->w = w;
    s->file.file = -1;
    s->config = pstd_mailbox_config(w->mailbox);
    s->intake = pstd_mailbox_intake(w->mailbox);
    (void)pst_alive_begin_phase(PST_ALIVE_LOAD);
    status = prepare_serving(s, diag);
    w->agreed = status != PST_OK && status != PST_ERR_PEER;
    w->engine = s->engine;
    if (status == PST_OK) {
        emit_begin(s);
        status = w->rank == 0 ? serve_first(s, diag) : serve_next(s, diag);
    }
    if (s->intake != NULL)
        pstd_intake_shut(s->intake, true);
    w->stopping = true;
    if (pst_engine_is_stuck(
            w->engine)) /* frees nothing: a thread still reads it */
        return status;
    free_serving(s);
    return status;
}
