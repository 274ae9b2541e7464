// SPDX-License-Identifier: Apache-2.0
/* Evaluations of a run so far: their file, and the best one's checkpoint. */
#include "daemon/exec/eval/evaluation.h"

#include <math.h>
#include <string.h>

#include "daemon/exec/eval/best.h"

void pstd_eval_emit_failed(struct pstd_session *s, uint64_t step,
                           const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_EVAL_FAILED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_error(&note, diag);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Compares past evaluations with the checkpoints in best/. If the best
 * evaluation has none there (its save failed, or --resume=STEP has moved it
 * away), reports that: then only evaluations with a checkpoint count. If this
 * run owns the folder, removes what a killed job has left beside the best one.
 */
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
    if (status == PST_OK && s->owner != NULL)
        status = pstd_best_remove_older(s, &e->past, diag);
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

enum pst_status pstd_eval_load_past(struct pstd_session *s,
                                    struct pst_diag *diag)
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
    if (status == PST_OK && s->missed > 0)
        pstd_evals_drop_after(&e->past, s->missed);
    return status == PST_OK ? find_best(s, diag) : status;
}

void pstd_eval_write_past(struct pstd_session *s)
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
        pstd_eval_emit_failed(s, s->step, &lost);
}

/* Records the evaluation of this step, whose save has ended. */
static void record_saved(struct pstd_session *s, uint64_t step)
{
    if (s->evaluation->unsaved == step)
        s->evaluation->unsaved = 0;
    pstd_eval_write_past(s);
}

/* Removes the checkpoints that the one of this step, which is in best/ now,
 * replaces. A better one in best/, for instance because its disk has come back,
 * stays. */
static enum pst_status replace_best(struct pstd_session *s, uint64_t step,
                                    struct pst_diag *diag)
{
    struct pstd_evals *past = &s->evaluation->past;
    const struct pstd_eval *kept;
    enum pst_status status = pstd_best_set_aside(s, step, diag);

    if (status == PST_OK)
        status = pstd_best_find(s, past, step, &kept, diag);
    return status == PST_OK ? pstd_best_remove_older(s, past, diag) : status;
}

/* Records the best evaluation in the run's result, after the save of that step.
 * is_lost: the save has made no checkpoint; if best/ cannot be read, only this
 * evaluation is marked as lost. Rank 0. */
static void update_result(struct pstd_session *s, uint64_t step, bool is_lost)
{
    const bool largest = pstd_metric_largest(&s->config);
    struct pstd_evals *past = &s->evaluation->past;
    const struct pstd_eval *best, *kept, *lost = NULL;
    struct pst_diag unread;

    if (is_lost && pstd_best_find(s, past, 0, &kept, &unread) != PST_OK)
        for (size_t i = 0; i < past->n; i++)
            past->at[i].lost |= past->at[i].step == step;
    best = pstd_evals_best(past, largest);
    for (size_t i = 0; i < past->n; i++)
        if (past->at[i].lost &&
            pstd_evals_is_better(&past->at[i], best, largest) &&
            pstd_evals_is_better(&past->at[i], lost, largest))
            lost = &past->at[i];
    s->result->best_step = best != NULL ? best->step : 0;
    s->result->best_loss =
        best != NULL && !pstd_metric_is_output(&s->config) ? best->loss : NAN;
    s->result->best_lost_step = lost != NULL ? lost->step : 0;
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
    if (s->w->rank == 0)
        update_result(s, step, status != PST_OK || is_bad);
    return PST_OK;
}

enum pst_status pstd_eval_save_best(struct pstd_session *s,
                                    const struct pstd_eval_found *found,
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
    s->evaluation->best_loss = found->loss;
    s->evaluation->best_metric = found->metric;
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

void pstd_eval_update_lost(struct pstd_session *s, bool is_put)
{
    struct pstd_evaluation *e = s->evaluation;
    const struct pstd_eval *kept;
    struct pst_diag unread;

    if (pstd_best_find(s, &e->past, is_put ? s->step : 0, &kept, &unread) !=
        PST_OK)
        pstd_eval_emit_failed(s, s->step, &unread);
}

enum pst_status pstd_eval_put_past(struct pstd_session *s, bool *ret,
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
