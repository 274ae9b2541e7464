// SPDX-License-Identifier: Apache-2.0
/* A run's checkpoints: where to go on, what is saved. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/exec/session.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint.h"

#define FIRST_PAUSE_S 1
#define LONG_PAUSE_S  8
#define LOOK_US       100000

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- going on ------------------------------------------------------------- */

static void emit_about(struct pstd_session *s, enum pstd_event event,
                       const char *dir, uint64_t step, const char *text)
{
    struct pstd_note note;

    pstd_note_init(&note, event);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Only reading every byte showed it: the next removal must know. */
static void emit_skipped(void *ctx, const char *dir, uint64_t step,
                         const char *text)
{
    struct pstd_session *s = ctx;
    const bool fallback = dir != s->config.checkpoint;

    if (s->n_passed < PST_COUNT(s->passed))
        s->passed[s->n_passed++] = (struct pstd_passed){step, fallback};
    emit_about(s, PSTD_EVENT_CHECKPOINT_SKIPPED, dir, step, text);
}

/* What is newer than the step that was asked for is no past of this run; and
 * what has lost its manifest would be replaced by a save of its step. */
static enum pst_status set_newer_aside(struct pstd_session *s, const char *dir,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    enum pst_status status = PST_OK;

    if (s->w->rank == 0 && dir != NULL)
        status =
            s->config.resume.step > 0
                ? pst_checkpoint_set_aside(dir, s->step, &former, diag)
                : pst_checkpoint_set_lost_aside(dir, s->step, &former, diag);
    if (status == PST_OK)
        pstd_session_emit_moved(s, dir, &former);
    return status;
}

static void emit_resumed(struct pstd_session *s,
                         const struct pst_checkpoint_info *info,
                         const char *dir)
{
    struct pstd_note note;

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

enum pst_status pstd_session_resume(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    const struct pst_load_choice choice = {
        .dir = s->config.checkpoint,
        .fallback = s->config.checkpoint_fallback,
        .step = s->config.resume.step > 0 ? s->config.resume.step
                                          : PST_CHECKPOINT_LATEST,
        .skipped = emit_skipped,
        .ctx = s,
    };
    struct pst_checkpoint_info info;
    enum pst_status status;

    if (!s->config.resume.on)
        return PST_OK;
    status =
        pst_engine_load(s->w->engine, &choice, &info, &s->in_fallback, diag);
    status = pstd_agree(s->w, status, diag);
    if (status != PST_OK)
        return status;
    s->step = s->saved = info.step;
    s->changes = s->saved_changes = info.changes;
    status = set_newer_aside(s, choice.dir, diag);
    if (status == PST_OK)
        status = set_newer_aside(s, choice.fallback, diag);
    status = pstd_agree(s->w, status, diag);
    if (status == PST_OK)
        emit_resumed(s, &info, s->in_fallback ? choice.fallback : choice.dir);
    return status;
}

/* Of this run, with all that it learnt before: nothing is set aside. */
enum pst_status pstd_session_roll_back(struct pstd_session *s,
                                       struct pst_diag *diag)
{
    const struct pst_load_choice choice = {
        .dir = s->config.checkpoint,
        .fallback = s->config.checkpoint_fallback,
        .step = PST_CHECKPOINT_LATEST,
        .skipped = emit_skipped,
        .ctx = s,
    };
    const enum pst_alive_phase before = pst_alive_enter(PST_ALIVE_LOAD);
    struct pst_checkpoint_info info = {0};
    enum pst_status status =
        pst_engine_load(s->w->engine, &choice, &info, &s->in_fallback, diag);

    status = pstd_agree(s->w, status, diag);
    pst_alive_leave(before);
    if (status != PST_OK)
        return status;
    s->step = s->saved = info.step;
    s->saved_changes = info.changes;
    return PST_OK;
}

/* --- saving --------------------------------------------------------------- */

/* That a checkpoint is of use shows when the next step works. Until then the
 * one before it stays, whatever --keep says. */
static unsigned keep_now(const struct pstd_session *s)
{
    return s->config.keep == 1 ? 2
                               : (unsigned)PST_MIN(s->config.keep, UINT32_MAX);
}

/* Once for each cause. */
static void emit_kept(void *ctx, const char *dir, uint64_t step,
                      const char *text)
{
    struct pstd_session *s = ctx;
    const uint64_t hash = pst_hash(text, strlen(text), step);

    for (size_t i = 0; i < PST_COUNT(s->kept); i++) {
        if (s->kept[i] == hash)
            return;
    }
    s->kept[s->n_kept++ % PST_COUNT(s->kept)] = hash;
    emit_about(s, PSTD_EVENT_CHECKPOINT_KEPT, dir, step, text);
}

static void prune(struct pstd_session *s, unsigned keep)
{
    const char *dir =
        s->in_fallback ? s->config.checkpoint_fallback : s->config.checkpoint;
    uint64_t damaged[PST_COUNT(s->passed)];
    struct pst_checkpoint_rule rule = {
        .keep = keep, .damaged = damaged, .stays = emit_kept, .ctx = s};

    if (s->w->rank != 0)
        return;
    for (size_t i = 0; i < s->n_passed; i++) {
        const struct pstd_passed *p = &s->passed[i];

        if (p->fallback == s->in_fallback)
            damaged[rule.n_damaged++] = p->step;
    }
    pst_checkpoint_prune(dir, s->saved, &rule);
}

void pstd_session_proven(struct pstd_session *s)
{
    if (s->prune_due)
        prune(s, 1);
    s->prune_due = false;
}

/* The step that was saved is good now, whatever lay there. */
static void forget_passed(struct pstd_session *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_passed; i++) {
        if (s->passed[i].step != s->saved ||
            s->passed[i].fallback != s->in_fallback)
            s->passed[n++] = s->passed[i];
    }
    s->n_passed = n;
}

static enum pst_status save_to(struct pstd_session *s, bool fallback,
                               const struct pst_save_note *what,
                               struct pst_diag *diag)
{
    const char *dir =
        fallback ? s->config.checkpoint_fallback : s->config.checkpoint;
    const double start = now_s();
    struct pstd_note note;
    enum pst_status status;

    status = fallback ? PST_OK : pstd_session_claim_again(s, diag);
    if (status == PST_OK)
        status = pst_engine_save(s->w->engine, dir, s->step, 0, what, diag);
    status = pstd_agree(s->w, status, diag);
    if (status == PST_ERR_PEER || status == PST_ERR_INTERNAL)
        return status;
    pstd_note_init(&note, status == PST_OK ? PSTD_EVENT_CHECKPOINT_SAVED
                                           : PSTD_EVENT_CHECKPOINT_FAILED);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "dir", dir);
    if (status == PST_OK)
        pstd_note_real(&note, "seconds", now_s() - start);
    else
        pstd_note_text(&note, "text", diag->text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    if (status == PST_OK) {
        s->saved = s->step;
        s->saved_changes = s->changes;
        s->in_fallback = fallback;
        s->prune_due = s->config.keep == 1;
        forget_passed(s);
        prune(s, keep_now(s));
    }
    return status;
}

/* One folder, then the other. */
static enum pst_status save_anywhere(struct pstd_session *s,
                                     const struct pst_save_note *what,
                                     struct pst_diag *diag)
{
    enum pst_status status = save_to(s, false, what, diag);
    struct pst_diag second;

    if (status == PST_OK || status == PST_ERR_PEER ||
        status == PST_ERR_INTERNAL || s->config.checkpoint_fallback == NULL)
        return status;
    status = save_to(s, true, what, &second);
    if (status != PST_OK)
        return pst_diag_set(diag, status, "%s; and %s", diag->text,
                            second.text);
    return PST_OK;
}

/* COLLECTIVE. Rank 0's clock decides, and who wants the job to end at once. */
static enum pst_status pause_before(struct pstd_session *s, double until,
                                    double seconds, bool *ret_go_on,
                                    struct pst_diag *diag)
{
    const double end = PST_MIN(now_s() + seconds, until);
    uint32_t go_on = now_s() < until;

    while (s->w->rank == 0 && go_on && now_s() < end) {
        if (pstd_mailbox_take(s->w->mailbox, PSTD_CTL_STOP_NOW) != 0)
            go_on = 0;
        (void)usleep(LOOK_US);
        pst_alive_goes_on();
    }
    *ret_go_on = false;
    if (s->w->size > 1) {
        enum pst_status status = pst_engine_broadcast(
            s->w->transport, &go_on, sizeof(go_on), NULL, NULL, diag);

        if (status != PST_OK)
            return status;
    }
    *ret_go_on = go_on != 0;
    return PST_OK;
}

/* Of a status that another rank may have found, only the text travels. */
static bool is_full(const char *text)
{
    char full[128], quota[128];

    return strstr(text, strerror_r(ENOSPC, full, sizeof(full))) != NULL ||
           strstr(text, strerror_r(EDQUOT, quota, sizeof(quota))) != NULL;
}

/* The state of the last save is lost with the process: somebody may make room
 * meanwhile. What it may not replace stays there. */
static enum pst_status save_again(struct pstd_session *s,
                                  const struct pst_save_note *what,
                                  enum pst_status status, struct pst_diag *diag)
{
    const double until = now_s() + (double)s->config.checkpoint_retry;
    double seconds = FIRST_PAUSE_S;

    while (status != PST_OK && status != PST_ERR_PEER &&
           status != PST_ERR_INTERNAL && status != PST_ERR_DENIED) {
        bool go_on;
        enum pst_status sent = pause_before(s, until, seconds, &go_on, diag);

        if (sent != PST_OK)
            return sent;
        if (!go_on)
            return pst_diag_set(
                diag, status,
                "the last checkpoint, of step %llu, is lost: %s. %s another "
                "disk with --checkpoint-fallback DIR; "
                "--checkpoint-retry SECONDS gives more time",
                (unsigned long long)s->step, diag->text,
                is_full(diag->text) ? "Make room, or name" : "Name");
        status = save_anywhere(s, what, diag);
        seconds = PST_MIN(2 * seconds, LONG_PAUSE_S);
    }
    return status;
}

/* A checkpoint from before a step that cannot be made says so. */
static enum pst_status mark(struct pstd_session *s, const char *fault,
                            struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->w->rank == 0)
        status =
            pst_checkpoint_mark(s->in_fallback ? s->config.checkpoint_fallback
                                               : s->config.checkpoint,
                                s->step, s->diverged, fault, diag);
    return pstd_agree(s->w, status, diag);
}

static enum pst_status save(struct pstd_session *s, bool last,
                            const char *fault, struct pst_diag *diag)
{
    const struct pst_save_note what = {.next_fault = fault,
                                       .diverged = fault != NULL && s->diverged,
                                       .changes = s->changes};
    const bool changed = s->changes != s->saved_changes;
    enum pst_status status;

    if (s->config.checkpoint == NULL)
        return PST_OK;
    if (s->saved == s->step && !changed)
        return fault != NULL ? mark(s, fault, diag) : PST_OK;
    if (s->done == 0 && !changed)
        return PST_OK;
    status = save_anywhere(s, &what, diag);
    return last ? save_again(s, &what, status, diag) : status;
}

enum pst_status pstd_session_save(struct pstd_session *s, bool last,
                                  const char *fault, struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_enter(PST_ALIVE_SAVE);
    const enum pst_status status = save(s, last, fault, diag);

    pst_alive_leave(before);
    return status;
}
