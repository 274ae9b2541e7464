// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/queries.h"

#include <math.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"

enum { RSS_MS = 50 }; /* maximum age of the resident bytes in a status */

static char *text_or_empty(char *text)
{
    return text != NULL ? text : (char *)"";
}

/* Fills in the newest step and its loss, even if that step had no event. */
static void fill_newest(const struct pstd_daemon *d, Pst__Control__Status *ret)
{
    const struct pstd_known *k = &d->known;
    struct pstd_totals totals;

    ret->step = k->step;
    ret->loss = k->loss;
    if (d->job.state != PSTD_JOB_TRAINING)
        return;
    totals = pstd_mailbox_totals(d->mailbox);
    if (totals.time_us > 0 && totals.run == k->run) {
        ret->step = totals.step;
        ret->loss = totals.loss;
    }
    ret->step = PST_MAX(ret->step, k->skipped);
}

/* Returns the resident bytes, at most RSS_MS old: reading them takes longer
 * than the rest of an answer. */
static uint64_t recent_rss(struct pstd_daemon *d)
{
    const uint64_t now = uv_now(&d->loop);

    if (d->rss_ms == 0 || now >= d->rss_ms + RSS_MS) {
        d->rss_bytes = pstd_rss();
        d->rss_ms = PST_MAX(now, 1);
    }
    return d->rss_bytes;
}

/* The messages of all evaluations. */
struct evals {
    Pst__Control__Evaluation at[PSTD_MAX_SETS], *pointers[PSTD_MAX_SETS];
    size_t n;
};

/* Borrows the record's names. */
static void fill_evals(const struct pstd_eval_record *record, struct evals *ret)
{
    ret->n = record->n;
    for (unsigned i = 0; i < record->n; i++) {
        Pst__Control__Evaluation *to = &ret->at[i];

        pst__control__evaluation__init(to);
        to->set = (char *)record->at[i].set; /* packing does not change it */
        to->step = record->at[i].step;
        to->loss = record->at[i].loss;
        to->metric = record->at[i].metric;
        to->bits_per_byte = record->at[i].bits_per_byte;
        ret->pointers[i] = to;
    }
}

enum pst_status pstd_query_status(struct pstd_call *call)
{
    struct pstd_daemon *d = call->d;
    struct pstd_known *k = &d->known;
    Pst__Control__Status s = PST__CONTROL__STATUS__INIT;
    struct evals evals;

    s.state = (char *)pstd_job_name(d->job.state);
    s.plan = (char *)d->plan;
    s.plan_digest = k->plan_digest;
    s.stages = k->stages;
    s.placement = text_or_empty(k->placement);
    s.run = k->run;
    s.run_id = k->run_id;
    fill_newest(d, &s);
    s.steps = k->steps;
    s.lr = k->lr;
    s.grad_norm = k->grad_norm;
    s.step_seconds = k->step_s;
    s.tok_s = k->tok_s;
    s.microbatches = k->microbatches;
    s.mfu = isfinite(k->mfu) ? k->mfu : 0;
    s.bubble = k->bubble;
    s.seq = d->history.seq;
    s.uptime_seconds = 1e-3 * (double)(uv_now(&d->loop) - d->start_ms);
    s.checkpoint_step = k->checkpoint_step;
    s.checkpoint_dir = text_or_empty(k->checkpoint_dir);
    s.last_error = text_or_empty(k->last_error);
    s.last_error_id = (char *)pst_error_id(k->error);
    s.paused = k->paused;
    s.rss_bytes = recent_rss(d);
    fill_evals(&k->evals, &evals);
    s.evaluations = evals.pointers;
    s.n_evaluations = evals.n;
    if (d->intake != NULL) {
        const struct pstd_intake_counts c =
            pstd_intake_counts(d->intake, false);

        s.answered = c.answered;
        s.failed = c.failed;
        s.refused = c.refused;
        s.waiting = c.waiting;
        if (c.answered > 0)
            s.answer_seconds = c.seconds / (double)c.answered;
    }
    call->reply.body_case = PST__CONTROL__REPLY__BODY_STATUS_NOW;
    call->reply.status_now = &s;
    pstd_call_reply(call);
    return PST_AGAIN;
}

/* Fills in the shares of the measured step's time, by class of span and by
 * cause of waiting. */
static void fill_causes(const struct pstd_rank_result *from,
                        Pst__Control__RankResult *to)
{
    double classes[3] = {0};

    if (!(from->step > 0))
        return;
    for (int k = 0; k < PST_N_SPANS; k++)
        classes[pst_span_class((enum pst_span_kind)k)] +=
            from->shares.seconds[k] / from->step;
    to->measured_step_seconds = from->step;
    to->work = classes[PST_CLASS_WORK];
    to->move = classes[PST_CLASS_MOVE];
    to->warm_up = from->shares.seconds[PST_SPAN_WARM_UP] / from->step;
    to->drain = from->shares.seconds[PST_SPAN_DRAIN] / from->step;
    to->imbalance = from->shares.seconds[PST_SPAN_IMBALANCE] / from->step;
    to->message = from->shares.seconds[PST_SPAN_MESSAGE] / from->step;
    to->other = from->shares.seconds[PST_SPAN_OTHER] / from->step;
}

static void fill_rank(const struct pstd_rank_result *from, unsigned rank,
                      Pst__Control__RankResult *to)
{
    pst__control__rank_result__init(to);
    to->rank = rank;
    to->stages = (char *)from->stages;
    to->peak_rss_bytes = from->peak_rss;
    to->base_rss_bytes = from->base_rss;
    to->planned_bytes = from->planned;
    to->high_water_bytes = from->high_water;
    to->step_seconds = from->sums.step;
    to->forward_seconds = from->sums.forward;
    to->backward_seconds = from->sums.backward;
    to->optim_seconds = from->sums.optim;
    to->wait_recv_seconds = from->sums.wait_recv;
    to->wait_other_seconds = from->sums.wait_other;
    fill_causes(from, to);
}

static void send_result(struct pstd_call *call, const struct pstd_result *from,
                        Pst__Control__RankResult *ranks,
                        Pst__Control__RankResult **pointers)
{
    Pst__Control__Result r = PST__CONTROL__RESULT__INIT;
    struct evals evals;

    for (size_t i = 0; i < from->n_ranks; i++) {
        fill_rank(&from->ranks[i], (unsigned)i, &ranks[i]);
        pointers[i] = &ranks[i];
    }
    r.run = from->run;
    r.run_id = (char *)from->run_id;
    r.finished = true;
    r.status = from->diag.status;
    r.text = (char *)from->diag.text;
    r.error_id = (char *)pst_error_id(from->diag.error);
    r.first_step = from->first_step;
    r.steps = from->steps;
    r.loss = from->loss;
    r.losses = from->losses;
    r.n_losses = from->n_losses;
    r.step_seconds = from->step_s;
    r.step_p99_seconds = from->step_p99_s;
    r.first_step_us = from->first_step_us;
    r.gflops = from->gflops;
    r.mfu = isfinite(from->mfu) ? from->mfu : 0;
    r.bubble = from->bubble;
    r.tok_s = from->tok_s;
    r.stopped = from->stopped;
    r.best_step = from->best_step;
    r.best_loss = from->best_loss;
    r.best_lost_step = from->best_lost_step;
    r.history_lost = (char *)from->history_lost.text;
    if (call->d->log.lost > 0)
        r.log_lost = call->d->log.why.text;
    r.enough = from->enough;
    r.checkpoint_step = from->checkpoint_step;
    r.ranks = pointers;
    r.n_ranks = from->n_ranks;
    r.processes = call->d->processes;
    fill_evals(&call->d->known.evals, &evals);
    r.evaluations = evals.pointers;
    r.n_evaluations = evals.n;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_RESULT;
    call->reply.result = &r;
    pstd_call_reply(call);
}

enum pst_status pstd_query_result(struct pstd_call *call)
{
    const struct pstd_result *from = call->d->result;
    Pst__Control__RankResult *ranks, **pointers;

    if (from == NULL)
        return pst_diag_set(&call->diag, PST_E_JOB_NOTHING_YET,
                            "no run has ended yet");
    ranks = pst_calloc(PST_TAG_DAEMON, from->n_ranks + 1, sizeof(*ranks));
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    pointers = pst_calloc(PST_TAG_DAEMON, from->n_ranks + 1, sizeof(*pointers));
    if (ranks == NULL || pointers == NULL) {
        pst_free(ranks);
        pst_free(pointers);
        return pst_diag_nomem(&call->diag, from->n_ranks * sizeof(*ranks));
    }
    send_result(call, from, ranks, pointers);
    pst_free(ranks);
    pst_free(pointers);
    return PST_AGAIN;
}

enum pst_status pstd_query_trace(struct pstd_call *call)
{
    Pst__Control__Trace trace;
    enum pst_status status;

    if (call->d->trace == NULL)
        return pst_diag_set(&call->diag, PST_E_JOB_NOTHING_YET,
                            "no step has been measured yet");
    status = pstd_trace_to_message(call->d->trace, &trace, &call->diag);
    if (status != PST_OK)
        return status;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_TRACE;
    call->reply.trace = &trace;
    pstd_call_reply(call);
    pstd_trace_free_message(&trace);
    return PST_AGAIN;
}

/* Events of an answer. A gap stands for consecutive events that cannot be read
 * back. */
struct listed {
    Pst__Control__Event *events[PSTD_EVENTS + 1];
    pstd_frame *frames[PSTD_EVENTS]; /* frames that contain the events */
    Pst__Control__Event gaps[PSTD_EVENTS / 2 + 1];
    size_t n, n_frames, n_gaps;
};

static void list_gap(struct listed *l, uint64_t lost)
{
    Pst__Control__Event *gap = &l->gaps[l->n_gaps];

    if (lost == 0)
        return;
    pst__control__event__init(gap);
    gap->time_us = pstd_now_us();
    gap->name = (char *)"gap";
    gap->dropped = lost;
    l->events[l->n++] = gap;
    l->n_gaps++;
}

enum pst_status pstd_query_log(struct pstd_call *call)
{
    struct pstd_daemon *d = call->d;
    const uint64_t wanted = PST_MIN(call->request->get_log->n, PSTD_EVENTS);
    const uint64_t first =
        PST_MAX(d->history.seq > wanted ? d->history.seq - wanted + 1 : 1,
                pstd_history_oldest(&d->history));
    Pst__Control__EventList list = PST__CONTROL__EVENT_LIST__INIT;
    struct listed *l = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*l));
    uint64_t lost = 0;

    if (l == NULL)
        return pst_diag_nomem(&call->diag, sizeof(*l));
    for (uint64_t seq = first; seq <= d->history.seq; seq++) {
        const struct pstd_packed *event = pstd_history_get(&d->history, seq);
        pstd_frame *frame = NULL;

        if (event == NULL ||
            pstd_frame_unpack(event->data + 4, event->size - 4,
                              PSTD_REQUEST_FIELD, &frame, NULL) != PST_OK) {
            lost++;
            continue;
        }
        list_gap(l, lost);
        lost = 0;
        l->frames[l->n_frames++] = frame;
        l->events[l->n++] = frame->event;
    }
    list_gap(l, lost);
    list.events = l->events;
    list.n_events = l->n;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_LOG;
    call->reply.log = &list;
    pstd_call_reply(call);
    for (size_t i = 0; i < l->n_frames; i++)
        pstd_frame_free(l->frames[i]);
    pst_free(l);
    return PST_AGAIN;
}
