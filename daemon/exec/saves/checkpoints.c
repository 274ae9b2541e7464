// SPDX-License-Identifier: Apache-2.0
/* Resumes a run from its checkpoints, and rolls it back to them. */
#include <inttypes.h>

#include "daemon/exec/change/ramp.h"
#include "daemon/exec/eval/evaluate.h"
#include "daemon/exec/session.h"
#include "stages/files/checkpoint/checkpoint.h"

void pstd_session_emit_checkpoint(struct pstd_session *s, enum pstd_event event,
                                  const char *dir, uint64_t step,
                                  const char *text)
{
    struct pstd_note note;

    pstd_note_init(&note, event);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Reports a checkpoint that loading has skipped as damaged. Records it for the
 * next pruning, which does not read the data and would otherwise count it as
 * good. */
static void emit_skipped(void *ctx, const char *dir, uint64_t step,
                         const char *text)
{
    struct pstd_session *s = ctx;
    const bool fallback = dir != s->config.checkpoint;

    if (s->n_passed < PST_COUNT(s->passed))
        s->passed[s->n_passed++] = (struct pstd_passed){step, fallback};
    pstd_session_emit_checkpoint(s, PSTD_EVENT_CHECKPOINT_SKIPPED, dir, step,
                                 text);
}

enum pst_status pstd_session_set_newer_aside(struct pstd_session *s,
                                             const char *dir, uint64_t above,
                                             struct pst_diag *diag)
{
    const bool is_first = dir == s->config.checkpoint;
    struct pst_checkpoint_former former = {0};
    enum pst_status status = PST_OK;

    if ((is_first ? s->owner : s->fallback_owner) != NULL)
        status = s->config.resume.step > 0
                     ? pst_checkpoint_set_aside(dir, above, &former, diag)
                     : pst_checkpoint_set_lost_aside(dir, above, &former, diag);
    if (status == PST_OK)
        pstd_session_emit_moved(s, dir, &former);
    return status;
}

struct pst_data_place pstd_session_place(const struct pstd_session *s)
{
    struct pst_data_place place = {0};

    if (s->data == NULL || !pst_data_place(s->data, s->step, &place))
        place.known = false;
    return place;
}

static void emit_resumed(struct pstd_session *s,
                         const struct pst_checkpoint_info *info,
                         const char *dir, const struct pst_str *differs)
{
    struct pstd_note note;

    if (differs->len > 0) {
        pstd_note_init(&note, PSTD_EVENT_RESUME_CHANGED);
        pstd_note_int(&note, "step", (int64_t)s->step);
        pstd_note_text(&note, "name", "model");
        pstd_note_text(&note, "before", info->model_digest);
        pstd_note_text(&note, "now", s->w->plan->model_digest);
        pstd_note_text(&note, "text", differs->text);
        pstd_mailbox_post(s->w->mailbox, &note, true);
    }

    pstd_note_init(&note, PSTD_EVENT_RESUME);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "dir", dir);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    if (info->reason[0] == '\0')
        return;
    pstd_note_init(&note, PSTD_EVENT_RESUME_DOUBT);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "text", info->reason);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Reports that the folder names this run, but another one has saved the
 * checkpoint: a user has put it there. */
static void report_other_run(struct pstd_session *s,
                             const struct pst_checkpoint_info *info)
{
    char text[256];

    if (!s->was_named || info->run[0] == '\0' || strcmp(info->run, s->run) == 0)
        return;
    (void)snprintf(text, sizeof(text),
                   "step-%08" PRIu64 " was saved by another run (%s) than that "
                   "of its folder (%s), which goes on from it nevertheless",
                   s->step, info->run, s->run);
    pstd_session_emit_doubt(s, text);
}

static enum pst_status load_checkpoint(struct pstd_session *s,
                                       struct pst_str *differs,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_lineage lineage;
    const struct pst_load_choice choice = {
        .lineage = &lineage,
        .differs = differs,
        .dir = s->config.checkpoint,
        .fallback = s->config.checkpoint_fallback,
        .step = s->config.resume.step > 0 ? s->config.resume.step
                                          : PST_CHECKPOINT_LATEST,
        .skipped = emit_skipped,
        .ctx = s,
    };
    struct pst_checkpoint_info info;
    enum pst_status status;

    if (s->w->rank == 0)
        pstd_session_find_lineage(s, UINT64_MAX, &lineage);
    status =
        pst_engine_load(s->w->engine, &choice, &info, &s->in_fallback, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK)
        return status;
    s->step = s->saved = s->good = info.step;
    s->good_before = UINT64_MAX;
    s->changes = s->saved_changes = s->good_changes = info.changes;
    status = pstd_ramp_begin(s, &info.place, NULL, diag);
    if (status == PST_OK && s->w->rank == 0)
        status = pstd_session_begin_course(s, info.course, diag);
    if (status == PST_OK)
        status = pstd_session_set_newer_aside(s, choice.dir, s->step, diag);
    if (status == PST_OK)
        status =
            pstd_session_set_newer_aside(s, choice.fallback, s->step, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        emit_resumed(s, &info, s->in_fallback ? choice.fallback : choice.dir,
                     differs);
    if (status == PST_OK && s->w->rank == 0) {
        pstd_gauge_read(&s->gauge, info.options);
        pstd_numbers_read(&s->spiked, &s->skipped, info.options);
        pstd_course_compare(s, &info);
        report_other_run(s, &info);
    }
    /* All ranks need rank 0's counters, to decide alike after a spike. */
    if (status == PST_OK && s->w->size > 1 &&
        strcmp(s->config.on_spike, "none") != 0)
        status = pstd_broadcast(s->w, &s->spiked, sizeof(s->spiked), diag);
    return status == PST_OK
               ? pstd_broadcast(s->w, &s->skipped, sizeof(s->skipped), diag)
               : status;
}

enum pst_status pstd_session_resume(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    struct pst_str differs = {0};
    enum pst_status status = PST_OK;

    if (s->config.resume.on)
        status = load_checkpoint(s, &differs, diag);
    pst_str_fini(&differs);
    return status;
}

/* COLLECTIVE. Loads the newest good checkpoint of the run; second: from
 * --checkpoint-fallback only. A folder that the run cannot own now is read
 * nevertheless if it names the run. *ret_begun: see pstd_session_roll_back. */
static enum pst_status load_newest(struct pstd_session *s, bool second,
                                   struct pst_checkpoint_info *ret,
                                   bool *ret_begun, struct pst_diag *diag)
{
    bool begun = false;
    struct pst_checkpoint_lineage lineage;
    const struct pst_load_choice choice = {
        .lineage = &lineage,
        .dir = s->config.checkpoint,
        .fallback = s->config.checkpoint_fallback,
        .step = PST_CHECKPOINT_LATEST,
        .skipped = emit_skipped,
        .begun = &begun,
        .ctx = s,
    };
    struct pst_diag ignored;
    enum pst_status status = pstd_session_claim_again(s, second, diag);

    if (status == PST_ERR_IO && choice.fallback != NULL)
        status = PST_OK;
    if (status == PST_OK && s->w->rank == 0) {
        pstd_session_find_lineage(s, s->step, &lineage);
        lineage.ignored[0] |= second;
    }
    if (status == PST_OK)
        status =
            pst_engine_load(s->w->engine, &choice, ret, &s->in_fallback, diag);
    status = pstd_agree_status(s->w, status, diag);
    *ret_begun = pstd_agree_status(s->w, begun ? PST_ERR_INTERNAL : PST_OK,
                                   &ignored) != PST_OK;
    return status;
}

/* Unlike a resume, keeps the measurements of this run, and moves no checkpoint.
 */
enum pst_status pstd_session_roll_back(struct pstd_session *s,
                                       const struct pst_data_place *skip_to,
                                       bool *ret_begun, struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_LOAD);
    const unsigned microbatches = s->w->batch.microbatches;
    struct pst_checkpoint_info info = {0};
    enum pst_status status = load_newest(s, false, &info, ret_begun, diag);

    /* If the first folder is not available, the second one may have a
     * checkpoint. */
    if (status == PST_ERR_IO && !*ret_begun &&
        s->config.checkpoint_fallback != NULL)
        status = load_newest(s, true, &info, ret_begun, diag);
    pst_alive_restore_phase(before);
    if (status != PST_OK)
        return status;
    s->step = s->saved = s->good = info.step;
    s->good_before = UINT64_MAX;
    pstd_eval_rewind(s);
    /* Options that were set since that checkpoint are in no checkpoint yet; the
     * run keeps them. */
    s->saved_changes = info.changes;
    s->good_changes = s->changes;
    if (s->w->rank == 0) {
        /* The counters of rollbacks are not restored, since they only grow. */
        struct pstd_numbers ignored;

        pstd_gauge_read(&s->gauge, info.options);
        pstd_numbers_read(&ignored, &s->skipped, info.options);
    }
    status = pstd_broadcast(s->w, &s->skipped, sizeof(s->skipped), diag);
    if (status != PST_OK)
        return status;
    status = pstd_agree_status(
        s->w, pstd_ramp_begin(s, &info.place, skip_to, diag), diag);
    if (status == PST_OK)
        pstd_ramp_emit(s, microbatches);
    return status;
}
