// SPDX-License-Identifier: Apache-2.0
/* Saves a run's checkpoints, while steps continue or between steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/exec/session.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/manifest.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/run/state/saver.h"

#define FIRST_PAUSE_S 1
#define LONG_PAUSE_S  8
#define POLL_US       100000

static const char *folder_of(const struct pstd_session *s, bool fallback)
{
    return fallback ? s->config.checkpoint_fallback : s->config.checkpoint;
}

/* Outcome of a save. */
struct outcome {
    enum pst_status status;
    const struct pst_diag *why; /* diagnosis of the failure */
    const char *bad;            /* why the saved checkpoint is bad, or "" */
    bool fallback;              /* saved in --checkpoint-fallback */
    bool asked;                 /* a client waits for the event of the save */
    uint64_t step, changes;
    double seconds; /* from the step that was saved to the end of the save */
    double stall_s; /* seconds without a step because of the save */
};

static bool is_fatal(enum pst_status status)
{
    return status == PST_ERR_PEER || status == PST_ERR_INTERNAL;
}

/* Restores the ownership of a folder that was removed during the save. */
static void restore_ownership(struct pstd_session *s, bool fallback)
{
    struct pst_checkpoint_owner *owner =
        fallback ? s->fallback_owner : s->owner;
    struct pst_diag diag;
    enum pst_status status = pst_checkpoint_check_owner(owner, &diag);

    if (status == PST_OK)
        status = pst_checkpoint_restore_owner(owner, &diag);
    if (status != PST_OK)
        pstd_session_emit_checkpoint(s, PSTD_EVENT_CHECKPOINT_KEPT,
                                     folder_of(s, fallback), s->saved,
                                     diag.text);
}

void pstd_note_bad(struct pstd_note *note, const char *dir, uint64_t step,
                   const char *why)
{
    struct pst_diag diag;

    (void)pst_diag_set(&diag, PST_E_RUN_NOT_FINITE,
                       "the checkpoint of step %llu in %s is bad: no run can "
                       "continue from it: %s",
                       (unsigned long long)step, dir, why);
    pstd_note_error(note, &diag);
}

static void conclude_save(struct pstd_session *s, const struct outcome *o)
{
    const bool is_saved = o->status == PST_OK;
    const bool is_bad = is_saved && o->bad[0] != '\0';
    const double cost = pstd_interval_end(&s->interval, o->stall_s, pst_now());
    struct pstd_note note;

    pstd_note_init(&note, is_bad     ? PSTD_EVENT_CHECKPOINT_BAD
                          : is_saved ? PSTD_EVENT_CHECKPOINT_SAVED
                                     : PSTD_EVENT_CHECKPOINT_FAILED);
    pstd_note_int(&note, "step", (int64_t)o->step);
    pstd_note_text(&note, "dir", folder_of(s, o->fallback));
    if (is_saved) {
        pstd_note_real(&note, "seconds", o->seconds);
        pstd_note_real(&note, "stall_s", o->stall_s);
        pstd_note_real(&note, "cost_s", cost);
    }
    if (is_bad)
        pstd_note_bad(&note, folder_of(s, o->fallback), o->step, o->bad);
    if (!is_saved)
        pstd_note_error(&note, o->why);
    pstd_note_int(&note, "asked", o->asked);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    if (!is_saved)
        return;
    s->saved = o->step;
    s->saved_changes = o->changes;
    s->in_fallback = o->fallback;
    s->prune_due = s->config.keep == 1;
    restore_ownership(s, o->fallback);
    if (!is_bad) {
        if (s->good != o->step)
            s->good_before = s->good;
        s->good = o->step;
        s->good_changes = o->changes;
        pstd_session_remove_passed(s);
    }
    pstd_session_prune(s);
}

/* --- between two steps ---------------------------------------------------- */

static enum pst_status save_to(struct pstd_session *s, bool fallback,
                               enum pstd_save how,
                               const struct pst_save_note *what,
                               struct pst_diag *diag)
{
    const bool last = fallback || s->config.checkpoint_fallback == NULL;
    const double start = pst_now();
    struct pst_save_note note = *what;
    char bad[PST_CHECKPOINT_REASON] = "";
    enum pst_status status;

    note.ret_bad = bad;

    pstd_interval_begin(&s->interval, start);
    status = pstd_session_claim_to_save(s, fallback, diag);
    if (status == PST_OK)
        status = pst_engine_save(s->w->engine, folder_of(s, fallback), s->step,
                                 0, &note, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (!is_fatal(status))
        conclude_save(s, &(struct outcome){.status = status,
                                           .why = diag,
                                           .bad = bad,
                                           .fallback = fallback,
                                           .asked = how == PSTD_SAVE_NOW &&
                                                    (status == PST_OK || last),
                                           .step = s->step,
                                           .changes = s->changes,
                                           .seconds = pst_now() - start,
                                           .stall_s = pst_now() - start});
    return status;
}

/* Saves in --checkpoint or, if that fails, in --checkpoint-fallback. */
static enum pst_status save_anywhere(struct pstd_session *s, enum pstd_save how,
                                     const struct pst_save_note *what,
                                     struct pst_diag *diag)
{
    enum pst_status status = save_to(s, false, how, what, diag);
    struct pst_diag second;

    if (status == PST_OK || is_fatal(status) ||
        s->config.checkpoint_fallback == NULL)
        return status;
    status = save_to(s, true, how, what, &second);
    if (status != PST_OK)
        return pst_diag_pass(diag, &second, "%s; and %s", diag->text,
                             second.text);
    return PST_OK;
}

/* COLLECTIVE. Waits `seconds` before another attempt to save, at most until
 * `until`. *ret_retry: rank 0's decision whether to try again; false if `until`
 * has passed or the job must end at once. */
static enum pst_status pause_save(struct pstd_session *s, double until,
                                  double seconds, bool *ret_retry,
                                  struct pst_diag *diag)
{
    const double end = PST_MIN(pst_now() + seconds, until);
    uint32_t retry = pst_now() < until;

    while (s->w->rank == 0 && retry && pst_now() < end) {
        if (pstd_mailbox_peek_control(s->w->mailbox, PSTD_CTL_STOP_NOW) != 0)
            retry = 0;
        (void)usleep(POLL_US);
        pst_alive_progress();
    }
    *ret_retry = false;
    if (s->w->size > 1) {
        enum pst_status status = pst_engine_broadcast(
            s->w->transport, &retry, sizeof(retry), NULL, NULL, diag);

        if (status != PST_OK)
            return status;
    }
    *ret_retry = retry != 0;
    return PST_OK;
}

/* Recognizes a full disk by its text, because the error of another rank is only
 * sent as text. */
static bool is_full(const char *text)
{
    char full[128], quota[128];

    return strstr(text, strerror_r(ENOSPC, full, sizeof(full))) != NULL ||
           strstr(text, strerror_r(EDQUOT, quota, sizeof(quota))) != NULL;
}

/* Retries a failed save after the last step, for instance until the user has
 * freed disk space, since its state would be lost with the process. Does not
 * retry if a checkpoint may not be replaced (PST_ERR_DENIED). */
static enum pst_status save_again(struct pstd_session *s,
                                  const struct pst_save_note *what,
                                  enum pst_status status, struct pst_diag *diag)
{
    const double until = pst_now() + (double)s->config.checkpoint_retry;
    double seconds = FIRST_PAUSE_S;

    while (status != PST_OK && !is_fatal(status) && status != PST_ERR_DENIED) {
        bool retry;
        enum pst_status sent = pause_save(s, until, seconds, &retry, diag);

        if (sent != PST_OK)
            return sent;
        if (!retry)
            return pst_diag_pass(
                diag, diag,
                "the last checkpoint, of step %llu, is lost: %s. %s another "
                "disk with --checkpoint-fallback DIR; "
                "--checkpoint-retry SECONDS gives more time",
                (unsigned long long)s->step, diag->text,
                is_full(diag->text) ? "Free space, or name" : "Name");
        status = save_anywhere(s, PSTD_SAVE_LAST, what, diag);
        seconds = PST_MIN(2 * seconds, LONG_PAUSE_S);
    }
    return status;
}

/* Records in the newest checkpoint that the step after it failed. */
static enum pst_status mark_fault(struct pstd_session *s, const char *fault,
                                  struct pst_diag *diag)
{
    const char *dir = folder_of(s, s->in_fallback);
    enum pst_status status = pstd_session_claim_again(s, s->in_fallback, diag);
    struct pstd_note note;

    if (status == PST_OK && s->w->rank == 0)
        status = pst_checkpoint_record_reason(dir, s->step, s->diverged, fault,
                                              diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK || !s->diverged)
        return status;
    if (s->good == s->step) {
        s->good = s->good_before;
        s->good_before = UINT64_MAX;
    }
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_BAD);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "dir", dir);
    pstd_note_bad(&note, dir, s->step, fault);
    pstd_note_int(&note, "asked", 0);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    return PST_OK;
}

struct pst_save_note pstd_session_save_note(const struct pstd_session *s)
{
    const bool spikes = strcmp(s->config.on_spike, "none") != 0;
    size_t n;
    struct pst_save_note note = {.changes = s->changes,
                                 .course = s->course_number,
                                 .run = s->run,
                                 .options = pst_str_text(&s->course),
                                 .place = pstd_session_place(s)};

    if (spikes)
        pstd_gauge_print(&s->gauge, note.more, sizeof(note.more));
    n = strlen(note.more);
    if (spikes || s->skipped > 0)
        pstd_numbers_print(&s->spiked, s->skipped, note.more + n,
                           sizeof(note.more) - n);
    return note;
}

/* --- beside the steps ----------------------------------------------------- */

/* Begins a save in one folder while steps continue. again: saves the copy made
 * for the previous save once more, since steps may have been made meanwhile. */
static enum pst_status begin_save_in(struct pstd_session *s, bool fallback,
                                     bool again, struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    const struct pst_save_note what = pstd_session_save_note(s);
    const char *dir = v->best != NULL ? v->best_dir : folder_of(s, fallback);
    enum pst_status status = pstd_session_claim_to_save(s, fallback, diag);

    if (status != PST_OK)
        return status;
    v->fallback = fallback;
    status = again ? pst_saver_begin_again(v->saver, dir, diag)
                   : pst_saver_begin(v->saver, s->w->engine, dir, s->step, 0,
                                     &what, diag);
    v->is_open |= status == PST_OK;
    return status;
}

static void emit_direct(struct pstd_session *s, const struct pst_diag *why)
{
    struct pstd_note note;

    if (s->saving.is_direct)
        return;
    s->saving.is_direct = true;
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_DIRECT);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "dir", s->config.checkpoint);
    pstd_note_error(&note, why);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* COLLECTIVE. Begins a save while steps continue. *ret_begun false: that is not
 * possible, and the caller saves between steps. */
static enum pst_status begin_save(struct pstd_session *s, bool *ret_begun,
                                  struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    enum pst_status status = PST_OK;

    *ret_begun = false;
    if (s->config.checkpoint_sync || v->is_direct)
        return PST_OK;
    if (v->saver == NULL)
        status = pst_saver_new(&v->saver, diag);
    status = pstd_agree_status(s->w, status, diag);
    v->step = s->step;
    v->changes = s->changes;
    v->begun = pst_now();
    pstd_interval_begin(&s->interval, v->begun);
    if (status == PST_OK)
        status = begin_save_in(s, false, false, diag);
    v->stall_s = pst_now() - v->begun;
    *ret_begun = status == PST_OK;
    if (status == PST_ERR_NOMEM)
        emit_direct(s, diag);
    /* If a folder is not available, the save between steps reports that. */
    return is_fatal(status) ? status : PST_OK;
}

unsigned pstd_session_words(const struct pstd_session *s)
{
    if (!s->saving.is_open)
        return s->w->rank == 0 && pstd_interval_is_due(&s->interval, pst_now())
                   ? PSTD_CTL_DUE
                   : 0;
    return pst_saver_is_working(s->saving.saver) ? PSTD_CTL_SAVING : 0;
}

static enum pst_status end_save(struct pstd_session *s, enum pst_status status,
                                double stall_s, struct pst_diag *diag);
static enum pst_status end_best_save(struct pstd_session *s,
                                     enum pst_status status,
                                     struct pst_diag *diag);

/* COLLECTIVE. Begins to save the same copy in another folder; if the folder is
 * not available, ends the save as failed. */
static enum pst_status begin_save_again(struct pstd_session *s, bool fallback,
                                        struct pst_diag *diag)
{
    enum pst_status status;

    s->saving.fallback = fallback;
    status = begin_save_in(s, fallback, true, diag);
    return status == PST_OK || is_fatal(status) ? status
                                                : end_save(s, status, 0, diag);
}

/* COLLECTIVE. Begins to save the same copy as the best checkpoint, if that was
 * requested during the save to --checkpoint that has ended. */
static enum pst_status begin_best_save(struct pstd_session *s,
                                       struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    enum pst_status status;

    if (v->is_open || v->then_best == NULL)
        return PST_OK;
    v->best = v->then_best;
    v->then_best = NULL;
    status = begin_save_in(s, false, true, diag);
    return status == PST_OK || is_fatal(status)
               ? status
               : end_best_save(s, status, diag);
}

/* COLLECTIVE. Ends a save; after a failure in --checkpoint begins one in
 * --checkpoint-fallback. Returns only fatal errors: a failed save only costs
 * the checkpoint. */
static enum pst_status end_save(struct pstd_session *s, enum pst_status status,
                                double stall_s, struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;

    v->is_open = false;
    conclude_save(
        s, &(struct outcome){.status = status,
                             .why = diag,
                             .bad = pst_saver_why_bad(v->saver),
                             .fallback = v->fallback,
                             .step = v->step,
                             .changes = v->changes,
                             .seconds = pst_now() - v->begun,
                             .stall_s = v->stall_s + stall_s +
                                        pst_saver_seconds_waited(v->saver)});
    if (status != PST_OK && !v->fallback &&
        s->config.checkpoint_fallback != NULL)
        status = begin_save_again(s, true, diag);
    return is_fatal(status) ? status : begin_best_save(s, diag);
}

/* COLLECTIVE. Ends a save of the best checkpoint; begins to save the same copy
 * to --checkpoint if that has become due. */
static enum pst_status end_best_save(struct pstd_session *s,
                                     enum pst_status status,
                                     struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    const pstd_best_fn ended = v->best;

    v->is_open = false;
    v->best = NULL;
    status = ended(s, status, v->step, pst_saver_why_bad(v->saver), diag);
    if (status != PST_OK || !v->then_checkpoint)
        return status;
    v->then_checkpoint = false;
    return begin_save_again(s, false, diag);
}

/* COLLECTIVE. Continues the save in progress; ends it if it is complete. */
static enum pst_status continue_save(struct pstd_session *s,
                                     struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    const double start = pst_now();
    enum pst_status status = pst_saver_continue(v->saver, diag);

    if (status == PST_AGAIN) {
        v->stall_s += pst_now() - start;
        return PST_OK;
    }
    if (is_fatal(status)) {
        v->is_open = false;
        return status;
    }
    return v->best != NULL ? end_best_save(s, status, diag)
                           : end_save(s, status, pst_now() - start, diag);
}

enum pst_status pstd_session_continue_save(struct pstd_session *s,
                                           unsigned control,
                                           struct pst_diag *diag)
{
    enum pst_alive_phase before;
    enum pst_status status;

    if (!s->saving.is_open || (control & PSTD_CTL_SAVING))
        return PST_OK;
    before = pst_alive_begin_phase(PST_ALIVE_SAVE);
    status = continue_save(s, diag);
    pst_alive_restore_phase(before);
    return status;
}

enum pst_status pstd_session_end_save(struct pstd_session *s,
                                      struct pst_diag *diag)
{
    const enum pst_alive_phase before =
        s->saving.is_open ? pst_alive_begin_phase(PST_ALIVE_SAVE)
                          : pst_alive_state().phase;
    enum pst_status status = PST_OK;

    while (s->saving.is_open && status == PST_OK) {
        pst_saver_wait(s->saving.saver);
        status = continue_save(s, diag);
    }
    pst_alive_restore_phase(before);
    return status;
}

void pstd_session_drop_save(struct pstd_session *s)
{
    pst_saver_free(s->saving.saver);
    s->saving.saver = NULL;
    s->saving.is_open = s->saving.then_checkpoint = false;
    s->saving.best = s->saving.then_best = NULL;
}

enum pst_status pstd_session_save_best(struct pstd_session *s, const char *dir,
                                       pstd_best_fn ended, bool *ret_begun,
                                       struct pst_diag *diag)
{
    struct pstd_saving *v = &s->saving;
    enum pst_status status;
    enum pst_alive_phase before;

    *ret_begun = v->is_open && v->best == NULL && v->then_best == NULL &&
                 v->step == s->step && v->changes == s->changes;
    if (*ret_begun) { /* the copy of the save in progress is of this state */
        v->then_best = ended;
        v->best_dir = dir;
        return PST_OK;
    }
    status = pstd_session_end_save(s, diag);
    if (status != PST_OK)
        return status;
    pstd_session_flush_history(s);
    before = pst_alive_begin_phase(PST_ALIVE_SAVE);
    s->saving.best = ended;
    s->saving.best_dir = dir;
    status = begin_save(s, ret_begun, diag);
    if (!*ret_begun)
        s->saving.best = NULL;
    pst_alive_restore_phase(before);
    return status;
}

/* True if a save of the best checkpoint is in progress, and its state is the
 * current one. */
static bool is_saving_best(const struct pstd_session *s)
{
    const struct pstd_saving *v = &s->saving;

    return v->is_open && v->best != NULL && v->step == s->step &&
           v->changes == s->changes;
}

/* --- beside or between the steps ------------------------------------------ */

/* True if the newest checkpoint has the current state, and is good. */
static bool is_state_saved(const struct pstd_session *s)
{
    return s->saved == s->step && s->saved_changes == s->changes &&
           s->good == s->step && s->good_changes == s->changes;
}

/* Reports an existing checkpoint of this state to the client that asked for
 * one. */
static void report_again(struct pstd_session *s)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_SAVED);
    pstd_note_int(&note, "step", (int64_t)s->saved);
    pstd_note_text(&note, "dir", folder_of(s, s->in_fallback));
    pstd_note_real(&note, "seconds", 0);
    pstd_note_real(&note, "stall_s", 0);
    pstd_note_real(&note, "cost_s", 0);
    pstd_note_int(&note, "asked", 1);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* COLLECTIVE. Forgets the newest checkpoint if it is no longer in its folder:
 * it may have been removed or moved away while no steps were made, for instance
 * in a pause. */
static enum pst_status check_saved(struct pstd_session *s,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    struct pst_diag ignored;
    enum pst_status status = PST_OK;
    uint32_t there = 1;

    if (s->w->rank == 0) {
        pst_checkpoint_step_dir(folder_of(s, s->in_fallback), s->saved, &path);
        pst_str_addf(&path, "/" PST_MANIFEST_FILE);
        there = !path.failed && access(path.text, F_OK) == 0 &&
                pst_checkpoint_check_owner(s->in_fallback ? s->fallback_owner
                                                          : s->owner,
                                           &ignored) == PST_OK;
        pst_str_fini(&path);
    }
    if (s->w->size > 1)
        status = pstd_broadcast(s->w, &there, sizeof(there), diag);
    if (!there)
        s->saved = s->good = s->good_before = UINT64_MAX;
    return status;
}

static enum pst_status save_now(struct pstd_session *s, enum pstd_save how,
                                const char *fault, struct pst_diag *diag)
{
    struct pst_save_note what = pstd_session_save_note(s);
    const bool changed = s->changes != s->saved_changes;
    const bool is_saved = s->saved == s->step && !changed;
    enum pst_status status = is_saved ? check_saved(s, diag) : PST_OK;
    const bool is_gone = is_saved && s->saved != s->step;
    bool begun = false;

    if (status != PST_OK)
        return status;
    what.next_fault = fault;
    what.diverged = fault != NULL && s->diverged;
    if (is_saved && !is_gone && how != PSTD_SAVE_NOW)
        return fault != NULL ? mark_fault(s, fault, diag) : PST_OK;
    if (!is_gone && is_state_saved(s)) {
        report_again(s);
        return PST_OK;
    }
    if (s->step == s->result->first_step && !changed && !is_gone &&
        how != PSTD_SAVE_NOW)
        return PST_OK;
    if (how == PSTD_SAVE_BESIDE) {
        status = begin_save(s, &begun, diag);
        if (status != PST_OK || begun)
            return status;
    }
    status = save_anywhere(s, how, &what, diag);
    return how == PSTD_SAVE_LAST ? save_again(s, &what, status, diag) : status;
}

void pstd_session_answer_checkpoint(struct pstd_session *s)
{
    if (s->w->rank == 0 && s->config.checkpoint != NULL && is_state_saved(s) &&
        pstd_mailbox_take_control(s->w->mailbox, PSTD_CTL_CHECKPOINT))
        report_again(s);
}

enum pst_status pstd_session_save(struct pstd_session *s, enum pstd_save how,
                                  const char *fault, struct pst_diag *diag)
{
    enum pst_alive_phase before;
    enum pst_status status;

    if (s->config.checkpoint == NULL)
        return PST_OK;
    pstd_session_flush_history(s);
    if (how == PSTD_SAVE_BESIDE && is_saving_best(s)) {
        s->saving.then_checkpoint = true;
        return PST_OK;
    }
    status = pstd_session_end_save(s, diag);
    if (status != PST_OK)
        return status;
    before = pst_alive_begin_phase(PST_ALIVE_SAVE);
    status = save_now(s, how, fault, diag);
    pst_alive_restore_phase(before);
    return status;
}
