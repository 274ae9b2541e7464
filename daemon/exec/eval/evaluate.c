// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/eval/evaluate.h"

#include <math.h>
#include <string.h>

#include "daemon/common/model/doubts.h"
#include "daemon/exec/eval/best.h"
#include "daemon/exec/eval/evaluation.h"
#include "stages/base/alloc.h"

/* Control words that are obeyed during an evaluation. */
#define WORDS                                                                  \
    (PSTD_CTL_STOPS | PSTD_CTL_CHECKPOINT | PSTD_CTL_PAUSE | PSTD_CTL_TRACE |  \
     PSTD_CTL_CHANGE)

/* Rank 0's decision after an evaluation; sent as bytes, it has no pointers. */
struct eval_decision {
    uint32_t best, enough; /* this evaluation is the best so far; early stop */
    uint32_t recorded;     /* there is an evaluation of the current step */
    uint64_t best_step;
    double best_loss; /* with --eval-metric: the best metric */
    /* Results of the evaluation of each set, which rank 0 computes. */
    struct pstd_eval_found found[PSTD_MAX_SETS];
};

enum pst_status pstd_eval_check(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    const char *option = pstd_every_is_set(&config->eval_every) ? "eval-every"
                         : config->eval_batches > 0             ? "eval-batches"
                         : config->eval_model != NULL           ? "eval-model"
                         : config->eval_metric != NULL          ? "eval-metric"
                         : config->token_bytes != NULL          ? "token-bytes"
                         : config->keep_best                    ? "keep-best"
                         : config->patience > 0                 ? "patience"
                                                                : NULL;

    if (config->eval_data == NULL && option != NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--%s needs --eval-data FILE", option);
    if (config->keep_best && config->checkpoint == NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--keep-best needs --checkpoint DIR");
    if (config->patience > 0 && !pstd_every_is_set(&config->eval_every))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--patience needs --eval-every N");
    return pstd_metric_check(config, diag);
}

void pstd_eval_drop(struct pstd_session *s)
{
    if (s->evaluation != NULL)
        pstd_eval_free_engine(s->evaluation);
}

enum pst_status pstd_eval_renew(struct pstd_session *s, struct pst_str *why,
                                struct pst_diag *diag)
{
    enum pst_status status;

    if (s->evaluation == NULL)
        return PST_OK;
    status = pstd_eval_make_engine(s, s->evaluation, diag);
    if (status != PST_OK)
        pst_str_add(why, diag->text);
    return status == PST_ERR_PEER ? status : PST_OK;
}

void pstd_eval_close(struct pstd_session *s)
{
    struct pstd_evaluation *e = s->evaluation;

    if (e == NULL)
        return;
    pstd_eval_free_engine(e);
    pstd_evals_fini(&e->past);
    pst_str_fini(&e->best);
    pst_str_fini(&e->file);
    pst_arena_fini(&e->arena);
    pst_free(e);
    s->evaluation = NULL;
}

/* --- results -------------------------------------------------------------- */

static struct eval_decision decide(const struct pstd_session *s)
{
    const struct pstd_evals *past = &s->evaluation->past;
    const bool largest = pstd_metric_largest(&s->config);
    const struct pstd_eval *best = pstd_evals_best(past, largest);
    struct eval_decision v = {.best_loss = NAN};

    for (size_t i = 0; i < past->n; i++)
        v.recorded |= past->at[i].step == s->step && !past->at[i].lost;
    if (best != NULL) {
        v.best = best->step == s->step;
        v.best_step = best->step;
        v.best_loss = best->loss;
    }
    v.enough =
        s->config.patience > 0 &&
        pstd_evals_since_best(past, largest, s->step) >= s->config.patience;
    return v;
}

static void apply_decision(struct pstd_session *s,
                           const struct eval_decision *v)
{
    s->enough = v->enough != 0;
    s->result->enough = s->enough;
    s->result->best_step = v->best_step;
    s->result->best_loss =
        pstd_metric_is_output(&s->config) ? NAN : v->best_loss;
}

/* COLLECTIVE. Broadcasts rank 0's decision. */
static enum pst_status share_decision(struct pstd_session *s,
                                      enum pst_status status,
                                      struct eval_decision *v,
                                      struct pst_diag *diag)
{
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && s->w->size > 1)
        status = pstd_broadcast(s->w, v, sizeof(*v), diag);
    if (status == PST_OK)
        apply_decision(s, v);
    return status;
}

/* Returns the key of the event field with the best number so far. */
static const char *best_key(const struct pstd_session *s)
{
    return pstd_metric_is_output(&s->config) ? "best_metric" : "best_loss";
}

static void emit_enough(struct pstd_session *s, const struct eval_decision *v)
{
    struct pstd_note note;

    if (!v->enough)
        return;
    pstd_note_init(&note, PSTD_EVENT_EARLY_STOP);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_int(&note, "best_step", (int64_t)v->best_step);
    pstd_note_real(&note, best_key(s), v->best_loss);
    pstd_note_int(&note, "patience", (int64_t)s->config.patience);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Warns if --eval-data is probably not as intended, or has rows that are not
 * evaluated. */
static void find_doubts(struct pstd_session *s, const struct pstd_eval_set *set)
{
    const struct pstd_evaluation *e = s->evaluation;
    const char *path = set->files;
    struct pst_str text = {0};
    uint64_t left;

    (void)pst_mean_rows(set->mean, &left);
    if (left > 0) {
        pst_str_addf(&text,
                     "the last %llu rows of %s do not fill a microbatch: "
                     "evaluations leave them out",
                     (unsigned long long)left, path);
        pstd_session_emit_doubt(s, pst_str_text(&text));
        pst_str_fini(&text);
    }
    if (s->config.data == NULL || strcmp(path, s->config.data) != 0)
        pstd_doubts_check_data(&s->config, path, &e->batch, set->data, 0,
                               pstd_session_emit_doubt, s);
}

static enum pst_status name_sets(struct pstd_session *s,
                                 struct pstd_evaluation *e,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    pst_arena_init(&e->arena, PST_TAG_DAEMON);
    status = pstd_sets_read("--eval-data", s->config.eval_data, &e->arena,
                            &e->names, diag);
    if (status != PST_OK)
        return status;
    e->n_sets = e->names.n;
    e->decides = pstd_metric_set(&s->config, &e->names);
    for (unsigned i = 0; i < e->n_sets; i++) {
        e->sets[i].name = e->names.at[i].name;
        e->sets[i].files = e->names.at[i].files;
    }
    return PST_OK;
}

/* True if a run starts although its evaluations cannot be prepared: a live
 * change of the model has made them impossible, for instance because
 * --eval-model lacks a module that was swapped in. The run went on after that
 * change, so its restart must, too. Files that cannot be read have another
 * cause. */
static bool is_left_out(const struct pstd_session *s, enum pst_status status)
{
    return s->w->changed != NULL && status != PST_ERR_PEER &&
           status != PST_ERR_INTERNAL && status != PST_ERR_NOT_FOUND &&
           status != PST_ERR_IO;
}

enum pst_status pstd_eval_prepare(struct pstd_session *s, struct pst_diag *diag)
{
    struct pstd_evaluation *e;
    enum pst_status status;

    s->result->best_loss = NAN;
    if (s->config.eval_data == NULL)
        return PST_OK;
    e = s->evaluation = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*e));
    status =
        e != NULL ? name_sets(s, e, diag) : pst_diag_nomem(diag, sizeof(*e));
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK || e == NULL)
        return status;
    if (s->config.checkpoint != NULL) {
        pst_str_addf(&e->best, "%s/" PSTD_BEST_FOLDER, s->config.checkpoint);
        pst_str_addf(&e->file, "%s/" PSTD_EVALS_FILE, s->config.checkpoint);
    }
    status = pstd_eval_make_engine(s, e, diag);
    if (status != PST_OK && is_left_out(s, status)) {
        pstd_eval_emit_failed(s, s->before, diag);
        return PST_OK;
    }
    for (unsigned i = 0; status == PST_OK && i < e->n_sets; i++)
        if (s->w->rank == 0)
            find_doubts(s, &e->sets[i]);
    return status;
}

enum pst_status pstd_eval_open(struct pstd_session *s, struct pst_diag *diag)
{
    struct eval_decision v = {.best_loss = NAN};
    struct pstd_evaluation *e = s->evaluation;
    enum pst_status status = PST_OK;

    if (s->evals_of.failed)
        status = pst_diag_nomem(diag, s->evals_of.len);
    else if (s->owner != NULL)
        status = pstd_best_clean(s, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK || e == NULL)
        return status;
    if (s->w->rank == 0) {
        status = pstd_eval_load_past(s, diag);
        v = decide(s);
    }
    status = share_decision(s, status, &v, diag);
    if (status != PST_OK)
        return status;
    /* If the evaluation of this step is not recorded, a stop has interrupted
     * it, and it is due again. */
    e->at = v.recorded ? s->step : 0;
    emit_enough(s, &v);
    return PST_OK;
}

/* --- one evaluation ------------------------------------------------------- */

/* COLLECTIVE. Obeys the control words of all ranks in a step of an evaluation.
 * A save in progress continues, and a requested checkpoint or trace is made.
 * PST_AGAIN: other words interrupt the evaluation; they are added to *control.
 */
static enum pst_status obey_words(struct pstd_session *s, unsigned words,
                                  unsigned *control, struct pst_diag *diag)
{
    enum pst_status status = pstd_session_continue_save(s, words, diag);

    if (status != PST_OK)
        return status;
    if (words & WORDS & ~(PSTD_CTL_CHECKPOINT | PSTD_CTL_TRACE)) {
        *control |= words & WORDS;
        return PST_AGAIN;
    }
    if (words & PSTD_CTL_CHECKPOINT)
        status = pstd_session_save(s, PSTD_SAVE_NOW, NULL, diag);
    if (status != PST_ERR_PEER && status != PST_ERR_INTERNAL)
        status = PST_OK; /* a failed save only costs the checkpoint */
    if (status == PST_OK && (words & PSTD_CTL_TRACE))
        status = pstd_session_trace(s, diag);
    (void)pst_alive_begin_phase(PST_ALIVE_STEP);
    return status;
}

/* COLLECTIVE. Runs the steps of the evaluation on the set e->now; rank 0 gets
 * the results. *control: adds the control words that arrived meanwhile and are
 * not yet obeyed. PST_AGAIN: it was interrupted. */
static enum pst_status run_set(struct pstd_session *s, unsigned *control,
                               struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    struct pstd_eval_set *set = &e->sets[e->now];
    const double begin = pst_now();
    enum pst_status status = PST_OK;
    const bool counts = s->w->rank == 0;
    /* A trace shows a training step. Before the first one, the request stays in
     * the mailbox. */
    const unsigned words = s->done > 0 ? WORDS : WORDS & ~PSTD_CTL_TRACE;

    if (counts)
        pst_mean_begin(set->mean);
    for (uint64_t i = 0; i < set->extent.steps && status == PST_OK; i++) {
        const unsigned asked = pstd_mailbox_take_control(s->w->mailbox, words) |
                               (pstd_session_words(s) & PSTD_CTL_SAVING);
        struct pst_step_result r = {0};

        status = pst_engine_step(e->evaluator.engine, i, pst_mean_fill,
                                 set->mean, asked, &r, diag);
        if (s->w->rank == 0 && (r.control & ~asked & PSTD_CTL_STOPS))
            pstd_emit_stop(s->w);
        if (status != PST_OK) {
            *control |= (r.control | asked) & WORDS;
            return status;
        }
        if (counts)
            pst_mean_take(set->mean, &r);
        status = pstd_metric_add(&e->metric, e->evaluator.engine, counts,
                                 set->mean, diag);
        if (status == PST_OK)
            status = obey_words(s, r.control, control, diag);
    }
    if (status != PST_OK)
        return status;
    set->found = (struct pstd_eval_found){.loss = NAN, .metric = NAN};
    if (counts)
        status = pst_mean_end(set->mean, &set->found.loss, diag);
    if (counts && status == PST_OK) {
        if (e->metric.on)
            set->found.metric = pst_mean_metric(set->mean);
        set->found.bits_per_byte = pst_mean_bits_per_byte(set->mean);
        set->found.seconds = pst_now() - begin;
    }
    return pstd_agree_status(s->w, status, diag);
}

/* COLLECTIVE. Evaluates all sets with the current parameters. */
static enum pst_status run_forward(struct pstd_session *s, unsigned *control,
                                   struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    enum pst_status status = pstd_agree_status(
        s->w, pst_engine_copy_values(e->evaluator.engine, s->w->engine, diag),
        diag);

    for (e->now = 0; e->now < e->n_sets && status == PST_OK; e->now++)
        status = run_set(s, control, diag);
    e->now = 0;
    return status;
}

/* Adds the results of the evaluation on one set to the note. */
static void add_found(struct pstd_note *note, const struct pstd_session *s,
                      const struct pstd_eval_found *found)
{
    pstd_note_real(note, "loss", found->loss);
    if (pstd_metric_is_output(&s->config))
        pstd_note_real(note, "metric", found->metric);
}

static void add_bits(struct pstd_note *note,
                     const struct pstd_eval_found *found)
{
    if (isfinite(found->bits_per_byte))
        pstd_note_real(note, "bits_per_byte", found->bits_per_byte);
}

static void emit_set(struct pstd_session *s, const struct pstd_eval_set *set,
                     const struct pstd_eval_found *found)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_EVAL_SET);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "set", set->name);
    add_found(&note, s, found);
    add_bits(&note, found);
    pstd_note_int(&note, "batches", (int64_t)set->extent.steps);
    pstd_note_real(&note, "seconds", found->seconds);
    pstd_note_int(&note, "rows", (int64_t)set->extent.rows);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void emit_evaluated(struct pstd_session *s, double seconds,
                           const struct eval_decision *v)
{
    const struct pstd_evaluation *e = s->evaluation;
    const struct pstd_eval_set *set = &e->sets[e->decides];
    struct pstd_note note;

    for (unsigned i = 0; i < e->n_sets; i++)
        if (e->sets[i].name[0] != '\0')
            emit_set(s, &e->sets[i], &v->found[i]);
    pstd_note_init(&note, PSTD_EVENT_EVALUATED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    add_found(&note, s, &v->found[e->decides]);
    pstd_note_int(&note, "batches", (int64_t)set->extent.steps);
    pstd_note_int(&note, "best", v->best);
    pstd_note_int(&note, "best_step", (int64_t)v->best_step);
    pstd_note_real(&note, best_key(s), v->best_loss);
    pstd_note_real(&note, "seconds", seconds);
    pstd_note_int(&note, "rows", (int64_t)set->extent.rows);
    add_bits(&note, &v->found[e->decides]);
    if (set->name[0] != '\0')
        pstd_note_text(&note, "set", set->name);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* COLLECTIVE. Records the results of an evaluation, reports them and acts on
 * rank 0's decision. */
static enum pst_status conclude_evaluation(struct pstd_session *s,
                                           double seconds,
                                           struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    struct eval_decision v = {.best_loss = NAN};
    enum pst_status status = PST_OK;
    bool is_put = false;

    if (s->w->rank == 0) {
        status = pstd_eval_put_past(s, &is_put, diag);
        if (status == PST_OK && s->config.keep_best)
            pstd_eval_update_lost(s, is_put);
        v = decide(s);
        v.best = v.best && is_put;
        for (unsigned i = 0; i < e->n_sets; i++)
            v.found[i] = e->sets[i].found;
    }
    status = share_decision(s, status, &v, diag);
    if (status != PST_OK)
        return status;
    emit_evaluated(s, seconds, &v);
    if (v.best && s->config.keep_best) {
        e->unsaved = s->step;
        status = pstd_eval_save_best(s, &v.found[e->decides], diag);
    } else {
        pstd_eval_write_past(s);
    }
    emit_enough(s, &v);
    return status;
}

void pstd_eval_rewind(struct pstd_session *s)
{
    struct pstd_evaluation *e = s->evaluation;

    if (e != NULL && e->at > s->step)
        e->at = s->step;
}

bool pstd_eval_is_due(const struct pstd_session *s)
{
    const struct pstd_evaluation *e = s->evaluation;

    if (e == NULL || e->at == s->step) /* step 0 is not evaluated */
        return false;
    return s->step == s->config.steps ||
           pstd_session_is_due(s, &s->config.eval_every);
}

enum pst_status pstd_eval_step(struct pstd_session *s, unsigned *control,
                               struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    const double begin = pst_now();
    unsigned came = 0;
    enum pst_status status = PST_OK;

    if (!pstd_eval_is_due(s))
        return PST_OK;
    if (e->evaluator.engine == NULL)
        status = pstd_eval_make_engine(s, e, diag);
    if (status == PST_OK) {
        (void)pst_alive_begin_phase(PST_ALIVE_STEP);
        status = run_forward(s, &came, diag);
    }
    *control |= came;
    if (status == PST_AGAIN)
        return PST_OK;
    /* A device's failure is one rank's alone, and steps would fail as well. */
    if (status == PST_ERR_PEER || status == PST_ERR_INTERNAL ||
        status == PST_ERR_DEVICE) {
        pstd_mailbox_set_control(s->w->mailbox, came & PSTD_CTL_STOPS);
        return status;
    }
    e->at = s->step;
    if (status == PST_OK)
        return conclude_evaluation(s, pst_now() - begin, diag);
    pstd_eval_emit_failed(s, s->step, diag);
    return PST_OK;
}
