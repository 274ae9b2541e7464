// SPDX-License-Identifier: Apache-2.0
/* One training run, from its first step to its last file. */
#include "daemon/exec/run.h"

#include <math.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/exec/change/change.h"
#include "daemon/exec/change/ramp.h"
#include "daemon/exec/eval/evaluate.h"
#include "daemon/exec/health/health.h"
#include "daemon/exec/report.h"
#include "daemon/exec/session.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fault.h"
#include "stages/run/data/tokens.h"

#define EVENT_GAP_S 0.05 /* interval of step events if steps are fast */

/* True if the step gets an event. Without --log-every, events are at least
 * EVENT_GAP_S apart, and each has means over all steps since the last event. */
static bool is_due(const struct pstd_session *s, double now)
{
    if (s->step == s->config.steps || s->done == 1)
        return true;
    if (s->config.log_every > 0)
        return s->step % s->config.log_every == 0;
    return now - s->last_event >= EVENT_GAP_S;
}

static void add_times(struct pst_times *sums, const struct pst_times *t)
{
    sums->step += t->step;
    sums->forward += t->forward;
    sums->backward += t->backward;
    sums->optim += t->optim;
    sums->wait_recv += t->wait_recv;
    sums->wait_other += t->wait_other;
    sums->wait_data += t->wait_data;
}

static void learn_pace(struct pstd_session *s, double seconds)
{
    const double limit = pst_pace_add(&s->pace, seconds);

    if (isnan(s->config.watchdog) && limit > 0)
        pst_alive_set_step_limit(limit);
}

static void count_step(struct pstd_session *s, const struct pst_step_result *r,
                       double seconds, double now)
{
    struct pstd_result *result = s->result;
    const size_t at = (size_t)(s->done % PSTD_MAX_LOSSES);

    learn_pace(s, seconds);
    if (s->done == 0)
        result->first_step_us = pstd_now_us();
    result->losses[at] = r->loss;
    s->times[at] = seconds;
    result->loss = r->loss;
    s->sums.idle += r->bubble * r->times.step;
    s->sums.seconds += seconds;
    s->sums.microbatches += s->w->batch.microbatches;
    add_times(&s->sums.times, &r->times);
    s->sums.done = ++s->done;
    s->newest.step = ++s->step;
    s->newest.result = *r;
    s->newest.result.losses = NULL; /* valid until the next step only */
    pstd_mailbox_count_step(s->w->mailbox, result->run, s->step, r->loss,
                            (uint64_t)pst_batch_rows(&s->w->batch),
                            s->step_tokens);
    pstd_session_add_step(s, r, seconds, now);
    pstd_report_spike(s, r->loss);
    if (is_due(s, now)) {
        s->last_event = now;
        /* Events that --log-every asks for are not dropped. */
        pstd_report_step(s,
                         s->step == s->config.steps || s->config.log_every > 0);
    }
}

/* Executes one order in a pause. A failed save is reported and does not end the
 * pause. */
static enum pst_status obey_paused(struct pstd_session *s,
                                   struct pstd_order *order,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (order->kind == PSTD_ORDER_CHANGE)
        return pstd_session_change(s, order, diag);
    if (order->kind == PSTD_ORDER_PAUSE) /* a client waits for this event */
        pstd_report_at(s, PSTD_EVENT_PAUSED);
    if (order->kind == PSTD_ORDER_SAVE)
        status = pstd_session_save(s, PSTD_SAVE_NOW, NULL, diag);
    return status == PST_ERR_PEER || status == PST_ERR_INTERNAL ? status
                                                                : PST_OK;
}

/* COLLECTIVE. Pauses the run, and executes orders until a resume or a stop.
 * *now: set by a stop without a checkpoint. */
static enum pst_status pause_run(struct pstd_session *s, bool *now,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool stops = false, resumed = false;

    pstd_report_newest(s);
    pstd_session_flush_history(s);
    pstd_report_at(s, PSTD_EVENT_PAUSED);
    while (status == PST_OK && !stops && !resumed) {
        struct pstd_order order = {0};

        status = pstd_next_order(s->w, PSTD_CTL_IN_PAUSE, &order, diag);
        if (status == PST_OK)
            status = obey_paused(s, &order, diag);
        *now |= order.kind == PSTD_ORDER_STOP_NOW;
        stops = *now || order.kind == PSTD_ORDER_STOP;
        resumed = order.kind == PSTD_ORDER_RESUME;
        pst_free(order.data);
    }
    if (status != PST_OK)
        return status;
    if (stops) {
        s->w->stopping = true;
        s->result->stopped = true;
        return PST_OK;
    }
    pst_fault_point("resumed");
    pstd_report_at(s, PSTD_EVENT_CONTINUED);
    return PST_OK;
}

/* COLLECTIVE. Executes all changes that wait on rank 0: one control word may
 * stand for several, or for none if a pause has executed them meanwhile. */
static enum pst_status change_model(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool any = true;

    while (status == PST_OK && any) {
        struct pstd_order order = {0};

        status = pstd_pending_order(s->w, &order, diag);
        any = order.kind == PSTD_ORDER_CHANGE;
        if (status == PST_OK && any)
            status = pstd_session_change(s, &order, diag);
        pst_free(order.data);
    }
    return status;
}

/* True if a save is due that no client has requested. The state after the last
 * step is saved before its evaluation, which may take long; without an
 * evaluation, the end of the run saves it. */
static bool is_save_due(const struct pstd_session *s, unsigned control)
{
    if (s->step == s->config.steps)
        return pstd_eval_is_due(s);
    return (s->step > 0 &&
            pstd_session_is_due(s, &s->config.checkpoint_every)) ||
           (control & PSTD_CTL_DUE);
}

/* COLLECTIVE. Executes the control words that all ranks have got in the step.
 * *now: set by a stop without a checkpoint. */
static enum pst_status obey_words(struct pstd_session *s, unsigned control,
                                  bool *now, struct pst_diag *diag)
{
    const bool due = is_save_due(s, control);
    enum pst_status status = PST_OK;

    if (control & (PSTD_CTL_STOP | PSTD_CTL_STOP_NOW)) {
        s->w->stopping = true;
        s->result->stopped = s->step < s->config.steps || pstd_eval_is_due(s) ||
                             (control & PSTD_CTL_STOP_NOW);
        return PST_OK;
    }
    status = pstd_replicas_compare(s, diag);
    if (status == PST_OK)
        status = pstd_session_continue_save(s, control, diag);
    if (status != PST_OK)
        return status;
    if (control & PSTD_CTL_CHECKPOINT)
        status = pstd_session_save(s, PSTD_SAVE_NOW, NULL, diag);
    else if (due)
        status = pstd_session_save(s, PSTD_SAVE_BESIDE, NULL, diag);
    if (status != PST_ERR_PEER && status != PST_ERR_INTERNAL)
        status = PST_OK;
    if (status == PST_OK && (control & PSTD_CTL_MEASURE))
        status = pstd_health_measure(s, diag);
    if (status == PST_OK && (control & PSTD_CTL_TRACE))
        status = pstd_session_trace(s, diag);
    if (control & (PSTD_CTL_CHANGE | PSTD_CTL_PAUSE) && status == PST_OK)
        status = pstd_session_end_save(s, diag);
    if (status == PST_OK && (control & PSTD_CTL_CHANGE))
        status = change_model(s, diag);
    if (status == PST_OK && (control & PSTD_CTL_PAUSE))
        status = pause_run(s, now, diag);
    return status;
}

static enum pst_status dump_first(struct pstd_session *s, struct pst_diag *diag)
{
    enum pst_status status;

    if (s->config.dump == NULL || s->done != 1)
        return PST_OK;
    (void)pst_alive_begin_phase(PST_ALIVE_GATHER);
    status = pst_engine_dump_first(s->w->engine, &s->dump, diag);
    if (status == PST_OK)
        pst_dump_set_step(s->dump, s->step);
    return pstd_agree_status(s->w, status, diag);
}

/* COLLECTIVE. Moves the data to position `skip_to`, unless NULL; the step
 * number stays. */
static enum pst_status skip_data(struct pstd_session *s,
                                 const struct pst_data_place *skip_to,
                                 struct pst_diag *diag)
{
    const struct pst_data_place place = pstd_session_place(s);

    return skip_to != NULL
               ? pstd_agree_status(
                     s->w, pstd_ramp_begin(s, &place, skip_to, diag), diag)
               : PST_OK;
}

/* COLLECTIVE. Returns to the newest good checkpoint. If there is none with the
 * current model, or none that can be read, repeats the step instead, if it was
 * not applied: it has left the state as it was. A step that was applied in part
 * stays so. skip_to: NULL on all ranks, or the position
 * at which the data continue. */
static enum pst_status roll_back(struct pstd_session *s,
                                 const struct pstd_numbers *by, uint64_t failed,
                                 const struct pst_data_place *skip_to,
                                 const char *why, struct pst_diag *diag)
{
    const char *remark = s->good == UINT64_MAX ? "there is no checkpoint yet"
                         : s->changes != s->good_changes
                             ? "the model was changed after the newest "
                               "checkpoint"
                             : NULL;
    char text[PST_DIAG_TEXT + 128], unread[PST_DIAG_TEXT];

    if (remark == NULL) {
        bool begun = false;
        const enum pst_status status =
            pstd_session_roll_back(s, skip_to, &begun, diag);

        if (status == PST_OK) {
            pstd_steps_drop_after(&s->history, s->step);
            pstd_report_skip(s, PSTD_EVENT_ROLLED_BACK, by, failed, why);
        }
        if (status == PST_OK || begun || status == PST_ERR_PEER ||
            status == PST_ERR_INTERNAL)
            return status;
        (void)snprintf(unread, sizeof(unread), "%s", diag->text);
        remark = unread;
    }
    (void)snprintf(text, sizeof(text), "%s (%s: %s)", why, remark,
                   failed > s->step ? "the step is made again"
                                    : "the rest of its update stays");
    pstd_report_skip(s, PSTD_EVENT_ROLLED_BACK, by, failed, text);
    return skip_data(s, skip_to, diag);
}

/* Returns the position in the data after a step, counted from 1, that was not
 * applied. */
static struct pst_data_place place_after(struct pstd_session *s,
                                         uint64_t failed)
{
    const uint64_t step = s->step;
    struct pst_data_place ret;

    s->step = failed;
    ret = pstd_session_place(s);
    s->step = step;
    return ret;
}

/* COLLECTIVE. Handles a step that no rank has applied because of its numbers.
 * The run continues after it or from an earlier state, or ends (PST_ERR_RANGE).
 * by: the policy, s->numbers or s->spiked. */
static enum pst_status handle_failed(struct pstd_session *s,
                                     struct pstd_numbers *by,
                                     struct pst_diag *diag)
{
    const struct pst_diag why = *diag;
    const uint64_t failed = s->step + 1;
    const struct pst_data_place after = place_after(s, failed);
    /* Depends on the option alone: ranks without data take part, too. */
    const bool skips = pst_has_suffix(by->policy, ",skip-data");
    enum pst_status status = pstd_session_end_save(s, diag);

    if (status != PST_OK)
        return status;
    switch (
        pstd_numbers_decide(by, failed, s->good == UINT64_MAX ? 0 : s->good)) {
    case PSTD_NUMBERS_SKIP:
        s->step = failed;
        s->skipped++;
        pstd_report_skip(s, PSTD_EVENT_STEP_SKIPPED, by, failed, why.text);
        break;
    case PSTD_NUMBERS_ROLLBACK:
        status =
            roll_back(s, by, failed, skips ? &after : NULL, why.text, diag);
        if (status != PST_OK) { /* this does not make the checkpoint bad */
            s->diverged = false;
            return status;
        }
        break;
    case PSTD_NUMBERS_STOP:
        *diag = why;
        return why.status;
    }
    s->diverged = false;
    return PST_OK;
}

/* COLLECTIVE. Continues after a step that no rank has applied, since its
 * gradients overflowed with the loss scale, which is halved. */
static enum pst_status pass_overflow(struct pstd_session *s,
                                     const struct pst_step_result *r,
                                     struct pst_diag *diag)
{
    const enum pst_status status = pstd_session_end_save(s, diag);

    if (status != PST_OK)
        return status;
    pstd_report_newest(s);
    pstd_report_overflow(s, ++s->step, r);
    return PST_OK;
}

/* COLLECTIVE. Handles an update in which some elements kept their values
 * because the new ones were not finite. The run continues with it or from an
 * earlier state, or ends (PST_ERR_RANGE). step, text: fields of its event. */
static enum pst_status handle_partial(struct pstd_session *s, uint64_t step,
                                      const char *text, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    switch (pstd_numbers_decide(&s->numbers, step,
                                s->good == UINT64_MAX ? 0 : s->good)) {
    case PSTD_NUMBERS_SKIP:
        break;
    case PSTD_NUMBERS_ROLLBACK:
        status = pstd_session_end_save(s, diag);
        if (status == PST_OK)
            status = roll_back(s, &s->numbers, step, NULL, text, diag);
        break;
    case PSTD_NUMBERS_STOP:
        status = pst_diag_set(diag, PST_E_RUN_NOT_FINITE, "%s", text);
        pstd_report_fault(s, step, diag);
    }
    return status;
}

/* COLLECTIVE. Checks the newest update before the state after it is saved or
 * evaluated, or the run ends; otherwise the next step would report it. */
static enum pst_status check_update(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    const enum pst_status status = pst_engine_check_update(s->w->engine, diag);
    struct pst_diag why;

    if (status != PST_ERR_RANGE)
        return status;
    why = *diag;
    pstd_report_partial(s, s->step, why.text);
    return handle_partial(s, s->step, why.text, diag);
}

/* True on rank 0 with --on-spike: this rank sets the limits above which a step
 * is not applied. */
static bool watches_spikes(const struct pstd_session *s)
{
    return s->w->rank == 0 && strcmp(s->config.on_spike, "none") != 0;
}

/* COLLECTIVE. Makes a step and reports it. asked: control words of this rank;
 * *ret_control: those of all ranks. */
static enum pst_status make_step(struct pstd_session *s, unsigned asked,
                                 unsigned *ret_control, struct pst_diag *diag)
{
    const double start = pst_now();
    struct pst_step_result r = {.microbatch = -1};
    enum pst_status status;
    double end;

    (void)pst_alive_begin_phase(PST_ALIVE_STEP);
    if (watches_spikes(s))
        pst_engine_limit(s->w->engine,
                         pstd_gauge_compute_limit(&s->gauge, &s->gauge.loss),
                         pstd_gauge_compute_limit(&s->gauge, &s->gauge.norm));
    status = pst_engine_step(s->w->engine, s->step, pst_data_fill, s->data,
                             asked, &r, diag);

    *ret_control = r.control;
    if (status == PST_ERR_RANGE)
        s->diverged = r.diverged && !r.no_targets;
    if (r.stayed_step > 0)
        pstd_report_partial(s, r.stayed_step, r.stayed_text);
    if (status == PST_OK && r.overflow) {
        status = pass_overflow(s, &r, diag);
        return status == PST_OK && r.stayed_step > 0
                   ? handle_partial(s, r.stayed_step, r.stayed_text, diag)
                   : status;
    }
    if (status == PST_OK) {
        if (r.stayed_step == 0)
            pstd_numbers_count_applied(&s->numbers);
        pstd_numbers_count_applied(&s->spiked);
        if (watches_spikes(s))
            pstd_gauge_add(&s->gauge, r.loss, r.grad_norm);
        pstd_session_prune_proven(s);
        end = pst_now();
        count_step(s, &r, end - start, end);
        pstd_interval_step(&s->interval, end - start, s->saving.is_open);
        pstd_health_step(s, end - start);
        pstd_session_check_flights(s);
        pstd_report_written(s);
    }
    if (status != PST_OK)
        pstd_report_newest(s);
    if (status == PST_ERR_RANGE)
        status = pstd_session_explain(s, &r, diag);
    if (status == PST_ERR_RANGE && (r.diverged || r.spiked) &&
        strcmp(r.spiked ? s->config.on_spike : s->config.on_nan, "stop") != 0) {
        status = handle_failed(s, r.spiked ? &s->spiked : &s->numbers, diag);
        if (status == PST_OK)
            return status;
    }
    /* PST_ERR_IO: the data can no longer be read. */
    s->refused = status == PST_ERR_RANGE || status == PST_ERR_INPUT ||
                 status == PST_ERR_IO;
    if (s->refused)
        pstd_report_fault(s, s->step + 1, diag);
    if (status == PST_OK)
        status = dump_first(s, diag);
    return status == PST_OK && r.stayed_step > 0
               ? handle_partial(s, r.stayed_step, r.stayed_text, diag)
               : status;
}

/* True if this run was paused when its former ranks died. In a job with --stay,
 * --begin-paused may refer to an earlier run, which has been given up. */
static bool begins_paused(const struct pstd_session *s)
{
    const struct pstd_config *config = pstd_mailbox_config(s->w->mailbox);

    return config->begin_paused && !s->w->begun && (s->again || !config->stay);
}

/* COLLECTIVE. Obeys the control words of all ranks after a step, and saves if
 * that is due. asked: words of this rank. */
static enum pst_status after_step(struct pstd_session *s, unsigned asked,
                                  unsigned control, bool *ret_now,
                                  struct pst_diag *diag)
{
    const unsigned saves =
        PSTD_CTL_CHECKPOINT | PSTD_CTL_PAUSE | PSTD_CTL_CHANGE;
    enum pst_status status = PST_OK;

    *ret_now = (control & PSTD_CTL_STOP_NOW) != 0;
    if (s->w->rank == 0 && (control & ~asked & PSTD_CTL_STOPS))
        pstd_emit_stop(s->w);
    if ((control & saves) || is_save_due(s, control) || pstd_eval_is_due(s))
        status = check_update(s, diag);
    return status == PST_OK ? obey_words(s, control, ret_now, diag) : status;
}

/* COLLECTIVE. Evaluates the state after the current step, and obeys the control
 * words that have interrupted the evaluation: it is still due then. */
static enum pst_status evaluate_step(struct pstd_session *s, bool *ret_now,
                                     struct pst_diag *diag)
{
    unsigned control = 0;
    enum pst_status status = pstd_eval_step(s, &control, diag);

    *ret_now = (control & PSTD_CTL_STOP_NOW) != 0;
    return status == PST_OK && control != 0
               ? obey_words(s, control, ret_now, diag)
               : status;
}

/* Makes the steps of the run. *ret_now: stopped without a checkpoint. If a step
 * fails that has accepted a stop request, the request is put back and ends the
 * job after the run. */
static enum pst_status make_steps(struct pstd_session *s, bool *ret_now,
                                  struct pst_diag *diag)
{
    const unsigned words = PSTD_CTL_STOPS | PSTD_CTL_CHECKPOINT |
                           PSTD_CTL_PAUSE | PSTD_CTL_TRACE | PSTD_CTL_CHANGE;
    enum pst_status status = PST_OK;
    bool pauses;

    pstd_interval_init(&s->interval, s->config.checkpoint_cost / 100,
                       pst_now());
    pauses = begins_paused(s);
    s->w->begun = true;
    if (pauses)
        status = pause_run(s, ret_now, diag);
    while (status == PST_OK && !s->result->stopped && !s->w->stopping &&
           !s->enough) {
        unsigned asked, control = 0;

        if (pstd_eval_is_due(s)) {
            status = evaluate_step(s, ret_now, diag);
            continue;
        }
        if (s->step >= s->config.steps) {
            status = check_update(s, diag);
            if (s->step >= s->config.steps)
                break;
            continue; /* a rollback repeats steps */
        }
        status = pstd_ramp_update(s, diag);
        if (status != PST_OK)
            break;
        pst_fault_gate(s->step);
        asked = pstd_mailbox_take_control(s->w->mailbox, words) |
                pstd_session_words(s) | pstd_health_words(s);
        status = make_step(s, asked, &control, diag);
        if (status == PST_OK)
            status = after_step(s, asked, control, ret_now, diag);
        if (status != PST_OK)
            pstd_mailbox_set_control(s->w->mailbox, asked & PSTD_CTL_STOPS);
    }
    return status;
}

static enum pst_status dump_final(struct pstd_session *s, struct pst_diag *diag)
{
    struct pstd_note note;
    enum pst_status status;

    if (s->config.dump == NULL || s->done == 0)
        return PST_OK;
    (void)pst_alive_begin_phase(PST_ALIVE_SAVE);
    pst_dump_set_step(s->dump, s->step);
    status = pstd_agree_status(
        s->w,
        pst_engine_dump_final(s->w->engine, s->dump, s->config.dump, diag),
        diag);
    if (status != PST_OK)
        return status;
    pstd_note_init(&note, PSTD_EVENT_DUMP);
    pstd_note_text(&note, "path", s->config.dump);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    return PST_OK;
}

/* Runs everything from the first step to the last file. A failed step leaves
 * the state as it was, so that state is saved as after a stop. The dump is
 * written before the last checkpoint: if the job dies while it writes the dump,
 * it resumes from an older checkpoint and writes the dump again. */
static enum pst_status run_session(struct pstd_session *s,
                                   struct pst_diag *diag)
{
    struct pst_diag save_diag, dump_diag;
    bool now = false;
    enum pst_status status = make_steps(s, &now, diag);
    enum pst_status saved = PST_OK, dumped = PST_OK;

    pstd_report_newest(s);
    if (status == PST_OK && !now)
        status = check_update(s, diag);
    if (status == PST_OK)
        dumped = dump_final(s, &dump_diag);
    if (dumped == PST_ERR_PEER || dumped == PST_ERR_INTERNAL) {
        *diag = dump_diag;
        return dumped;
    }
    if (status != PST_OK && status != PST_ERR_RANGE &&
        status != PST_ERR_INPUT && !s->refused)
        return status;
    if (!now)
        saved =
            pstd_session_save(s, PSTD_SAVE_LAST,
                              status == PST_OK ? NULL : diag->text, &save_diag);
    pstd_session_answer_checkpoint(s);
    if (status == PST_OK && saved != PST_OK) {
        *diag = save_diag;
        status = saved;
    }
    if (status == PST_OK && dumped != PST_OK) {
        *diag = dump_diag;
        status = dumped;
    }
    return status;
}

/* True for failures that leave ranks and memory intact. A device fails on one
 * rank alone: ranks of other processes wait for it in the step. */
static bool is_recoverable(const struct pstd_executor *w,
                           enum pst_status status)
{
    return status != PST_OK && status != PST_ERR_PEER &&
           status != PST_ERR_INTERNAL &&
           (status != PST_ERR_DEVICE || w->size == 1);
}

enum pst_status pstd_run(struct pstd_executor *w,
                         const struct pstd_order *order, struct pst_diag *diag)
{
    struct pstd_session s = {.w = w,
                             .saved = UINT64_MAX,
                             .good = UINT64_MAX,
                             .good_before = UINT64_MAX,
                             .again = order->kind == PSTD_ORDER_TRAIN_AGAIN};
    enum pst_status status;

    s.result = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*s.result));
    if (s.result == NULL)
        return pst_diag_nomem(diag, sizeof(*s.result));
    s.result->run = ++w->runs;
    s.result->loss = NAN;
    s.result->step_s = s.result->step_p99_s = NAN;
    (void)pst_alive_begin_phase(PST_ALIVE_LOAD);
    status = pstd_session_prepare(&s, order, diag);
    s.result->first_step = s.step;
    s.numbers = (struct pstd_numbers){.policy = s.config.on_nan,
                                      .limit = s.config.nan_limit};
    s.spiked.policy = s.config.on_spike;
    s.spiked.limit = s.config.nan_limit;
    s.gauge.window = s.config.spike_window;
    s.gauge.threshold = s.config.spike_threshold;
    pstd_health_open(&s);
    if (status == PST_OK) {
        /* An earlier run of the job may have left limits in the engine. */
        pst_engine_limit(w->engine, INFINITY, INFINITY);
        status = run_session(&s, diag);
    }
    pstd_health_close(&s);
    pstd_session_end_history(&s);
    if (pst_engine_is_stuck(
            w->engine)) /* frees nothing: a thread still reads it */
        return status;
    pstd_session_drop_save(&s);
    if (status == PST_OK || is_recoverable(w, status)) {
        if (status != PST_OK && diag->status == PST_OK) /* never a success */
            (void)pst_diag_set(diag, PST_E_INTERNAL_BUG,
                               "the run ended without a reason, with %s",
                               pst_status_name(status));
        if (status != PST_OK)
            s.result->diag = *diag;
        (void)pst_alive_begin_phase(PST_ALIVE_GATHER);
        status = pstd_session_write_totals(&s, diag);
        if (status == PST_OK)
            pstd_session_emit_end(&s);
    }
    pstd_steps_end(&s.history);
    pstd_session_release(&s);
    pstd_eval_close(&s);
    pst_alive_set_limit(pstd_watchdog(pstd_mailbox_config(w->mailbox)));
    pst_dump_free(s.dump);
    /* The engine reads the tokens in each step, and a changed plan belongs to
     * this run: neither is reused. */
    if (s.tokens != NULL || w->changed != NULL) {
        pst_engine_free(w->engine);
        w->engine = NULL;
    }
    pstd_changed_free(w->changed);
    w->changed = NULL;
    pst_tokens_free(s.tokens);
    pst_data_close(s.data);
    pst_free(s.times);
    pst_str_fini(&s.course);
    pst_str_fini(&s.evals_of);
    pst_vec_fini(&s.set);
    pstd_config_fini(&s.config);
    pstd_result_free(s.result);
    return status;
}
