// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/eval/evaluate.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

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
    const char *option = config->eval_every > 0        ? "eval-every"
                         : config->eval_batches > 0    ? "eval-batches"
                         : config->eval_model != NULL  ? "eval-model"
                         : config->eval_metric != NULL ? "eval-metric"
                         : config->token_bytes != NULL ? "token-bytes"
                         : config->keep_best           ? "keep-best"
                         : config->patience > 0        ? "patience"
                                                       : NULL;

    if (config->eval_data == NULL && option != NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--%s needs --eval-data FILE", option);
    if (config->keep_best && config->checkpoint == NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--keep-best needs --checkpoint DIR");
    if (config->patience > 0 && config->eval_every == 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--patience needs --eval-every N");
    return pstd_metric_check(config, diag);
}

void pstd_eval_drop(struct pstd_session *s)
{
    if (s->evaluation != NULL)
        pstd_eval_free_engine(s->evaluation);
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

/* Compares past evaluations with the checkpoints in best/, which has none of
 * the best evaluation if its save failed, or if --resume=STEP has moved it
 * away. Then only those that best/ has count, or the next one counts as the
 * first. */
static enum pst_status find_best(struct pstd_session *s, struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    const bool largest = pstd_metric_largest(&s->config);
    const struct pstd_eval *best = pstd_evals_best(&e->past, largest), *kept;
    struct pstd_note note;
    enum pst_status status;

    if (best == NULL || !s->config.keep_best)
        return PST_OK;
    status = pstd_best_find(s, &e->past, 0, &kept, diag);
    if (status != PST_OK || !best->lost)
        return status;
    pstd_note_init(&note, PSTD_EVENT_BEST_GONE);
    pstd_note_int(&note, "step", (int64_t)best->step);
    pstd_note_text(&note, "dir", pst_str_text(&e->best));
    pstd_note_real(&note, pstd_metric_is_output(&s->config) ? "metric" : "loss",
                   best->loss);
    pstd_note_int(&note, "left", kept != NULL ? (int64_t)kept->step : 0);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    return PST_OK;
}

/*
 * Restores past evaluations. A run that resumes from its newest checkpoint
 * repeats the steps after it and, with the same options, gets the same results;
 * if it gets worse ones, the best one stays the best (put_eval). A run that
 * goes back further, or starts again, forgets them. Changes nothing in the
 * folder, which another job may own: pstd_best_clean() does.
 */
static enum pst_status load_past(struct pstd_session *s, struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    const char *path = pst_str_text(&e->file);
    enum pst_status status;

    if (e->best.failed || e->file.failed)
        return pst_diag_nomem(diag, e->file.len);
    if (s->config.checkpoint == NULL)
        return PST_OK;
    status = pstd_best_read_past(s, path, &e->past, diag);
    if (status == PST_OK && s->config.resume.step > 0)
        pstd_evals_drop_after(&e->past, s->step);
    return status == PST_OK ? find_best(s, diag) : status;
}

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

static void emit_failed(struct pstd_session *s, uint64_t step,
                        const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_EVAL_FAILED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_error(&note, diag);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* True if a start goes on although evaluations cannot be prepared: a live
 * change of the model has made them impossible, for instance because
 * --eval-model lacks a module that was swapped in. The run in which it was made
 * went on, so its restart must, too. Files that cannot be read have another
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
        emit_failed(s, s->before, diag);
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
        status = load_past(s, diag);
        v = decide(s);
    }
    status = share_decision(s, status, &v, diag);
    if (status != PST_OK)
        return status;
    /* If nothing is recorded, a stop has interrupted the evaluation of this
     * step, and it is made now. */
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

/* Writes the file of past evaluations, up to the first one whose checkpoint is
 * not yet saved, since a recorded best checkpoint must exist. If writing fails,
 * only a later resume is affected: it does not know the best evaluation. If the
 * folder could not be taken at the start, which was reported, writes nothing
 * until a save has taken it. */
static void write_past(struct pstd_session *s)
{
    const struct pstd_evaluation *e = s->evaluation;
    struct pstd_evals known = e->past; /* borrows the entries */
    struct pst_diag lost;

    for (size_t i = known.n; i-- > 0 && e->unsaved > 0;)
        if (known.at[i].step >= e->unsaved)
            known.n = i;
    if (s->owner != NULL && e->file.len > 0 &&
        (pst_checkpoint_check_owner(s->owner, &lost) != PST_OK ||
         pstd_evals_write(e->file.text, &known, pst_str_text(&s->evals_of),
                          &lost) != PST_OK))
        emit_failed(s, s->step, &lost);
}

/* Records the evaluation of this step, whose save has ended. */
static void record_saved(struct pstd_session *s, uint64_t step)
{
    if (s->evaluation->unsaved == step)
        s->evaluation->unsaved = 0;
    write_past(s);
}

/* Removes what the best checkpoint, that of this step, takes the place of.
 * Nothing if best/ has a better one, which came back on its disk meanwhile. */
static enum pst_status replace_best(struct pstd_session *s, uint64_t step,
                                    struct pst_diag *diag)
{
    const struct pst_checkpoint_rule rule = {.keep = 1};
    struct pstd_evaluation *e = s->evaluation;
    const struct pstd_eval *kept = NULL;
    enum pst_status status = pstd_best_set_aside(s, step, diag);

    if (status == PST_OK)
        status = pstd_best_find(s, &e->past, step, &kept, diag);
    if (status == PST_OK && kept != NULL && kept->step == step)
        pst_checkpoint_prune(pst_str_text(&e->best), step, &rule);
    return status;
}

/* COLLECTIVE. Called when the save of the best checkpoint has ended; only then
 * the evaluation is recorded, before older checkpoints are removed. */
static enum pst_status end_best_save(struct pstd_session *s,
                                     enum pst_status saved, uint64_t step,
                                     const char *bad, struct pst_diag *diag)
{
    const char *dir = pst_str_text(&s->evaluation->best);
    const bool is_bad = bad[0] != '\0';
    struct pstd_note note;
    enum pst_status status = saved;

    if (status == PST_OK && s->owner != NULL)
        status = pst_checkpoint_check_owner(s->owner, diag);
    if (status == PST_OK && s->owner != NULL)
        status = pstd_best_check_folder(s, diag);
    if (status == PST_OK && s->owner != NULL) {
        record_saved(s, step);
        status = replace_best(s, step, diag);
    }
    status = pstd_agree_status(s->w, status, diag);
    pstd_note_init(&note, status != PST_OK ? PSTD_EVENT_CHECKPOINT_FAILED
                          : is_bad         ? PSTD_EVENT_CHECKPOINT_BAD
                                           : PSTD_EVENT_BEST_SAVED);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "dir", dir);
    if (status == PST_OK && !is_bad) {
        pstd_note_real(&note, "loss", s->evaluation->best_loss);
        if (pstd_metric_is_output(&s->config))
            pstd_note_real(&note, "metric", s->evaluation->best_metric);
    } else {
        if (status == PST_OK)
            pstd_note_bad(&note, dir, step, bad);
        else
            pstd_note_error(&note, diag);
        pstd_note_int(&note, "asked", 0);
    }
    pstd_mailbox_post(s->w->mailbox, &note, true);
    if (status == PST_ERR_PEER || status == PST_ERR_INTERNAL)
        return status;
    if (status != PST_OK)
        record_saved(s, step);
    return PST_OK;
}

/* COLLECTIVE. Saves the best checkpoint, while steps continue if there is
 * memory for a copy. */
static enum pst_status save_best(struct pstd_session *s, double loss,
                                 struct pst_diag *diag)
{
    const char *dir = pst_str_text(&s->evaluation->best);
    char bad[PST_CHECKPOINT_REASON] = "";
    struct pst_save_note what = pstd_session_save_note(s);
    enum pst_alive_phase before;
    bool begun = false;
    enum pst_status status = PST_OK;

    if (s->saving.best != NULL || s->saving.then_best != NULL)
        status = pstd_session_end_save(s, diag);
    if (status != PST_OK)
        return status;
    what.ret_bad = bad;
    s->evaluation->best_loss = loss;
    if (s->w->rank == 0)
        status = pstd_best_check_folder(s, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK)
        return end_best_save(s, status, s->step, bad, diag);
    status = pstd_session_save_best(s, dir, end_best_save, &begun, diag);
    if (status != PST_OK || begun)
        return status;
    before = pst_alive_begin_phase(PST_ALIVE_SAVE);
    status = pstd_session_claim_to_save(s, false, diag);
    if (status == PST_OK)
        status = pst_engine_save(s->w->engine, dir, s->step, 0, &what, diag);
    status = end_best_save(s, status, s->step, bad, diag);
    pst_alive_restore_phase(before);
    return status;
}

/* Adds the results on a set. */
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

/* Finds out which evaluations have no checkpoint in best/ now, without the one
 * that is just made and the one that is being saved. If best/ cannot be read,
 * it counts as before. */
static void update_lost(struct pstd_session *s, bool is_put)
{
    struct pstd_evaluation *e = s->evaluation;
    const struct pstd_eval *kept;
    struct pst_diag unread;

    if (pstd_best_find(s, &e->past, is_put ? s->step : 0, &kept, &unread) !=
        PST_OK)
        emit_failed(s, s->step, &unread);
}

/*
 * Adds the evaluation of the current step to the past ones. *ret: false if the
 * best one is of this step too, and is better: after a resume with other
 * options, or a rollback that leaves out data, the step has other parameters
 * than when its checkpoint was saved. Then that one stays the best.
 */
static enum pst_status put_eval(struct pstd_session *s, bool *ret,
                                struct pst_diag *diag)
{
    struct pstd_evaluation *e = s->evaluation;
    const struct pstd_eval_found *found = &e->sets[e->decides].found;
    struct pstd_eval eval = {
        .step = s->step, .loss = e->metric.on ? found->metric : found->loss};
    const bool largest = pstd_metric_largest(&s->config);
    const struct pstd_eval *best = pstd_evals_best(&e->past, largest);

    *ret = best == NULL || best->step != s->step || best->loss == eval.loss ||
           pstd_evals_is_better(&eval, best, largest);
    if (!*ret)
        return PST_OK;
    e->past.n_sets = e->sets[0].name[0] != '\0' ? e->n_sets : 0;
    for (unsigned i = 0; i < e->past.n_sets; i++) {
        memcpy(e->past.names[i], e->sets[i].name, strlen(e->sets[i].name) + 1);
        eval.sets[i] = e->sets[i].found.loss;
    }
    return pstd_evals_put(&e->past, &eval, diag);
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
        status = put_eval(s, &is_put, diag);
        if (status == PST_OK && s->config.keep_best)
            update_lost(s, is_put);
        v = decide(s);
        v.best = v.best && is_put;
        for (unsigned i = 0; i < e->n_sets; i++)
            v.found[i] = e->sets[i].found;
    }
    status = share_decision(s, status, &v, diag);
    if (status != PST_OK)
        return status;
    emit_evaluated(s, seconds, &v);
    e->best_metric = v.best ? v.found[e->decides].metric : e->best_metric;
    if (v.best && s->config.keep_best) {
        e->unsaved = s->step;
        status = save_best(s, v.found[e->decides].loss, diag);
    } else {
        write_past(s);
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
    const uint64_t every = s->config.eval_every;

    if (e == NULL || e->at == s->step) /* step 0 is not evaluated */
        return false;
    return s->step == s->config.steps || (every > 0 && s->step % every == 0);
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
    if (status == PST_ERR_PEER || status == PST_ERR_INTERNAL) {
        pstd_mailbox_set_control(s->w->mailbox, came & PSTD_CTL_STOPS);
        return status;
    }
    e->at = s->step;
    if (status == PST_OK)
        return conclude_evaluation(s, pst_now() - begin, diag);
    emit_failed(s, s->step, diag);
    return PST_OK;
}
