// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"

/* A request on its way to its reply. */
struct call {
    struct pstd_daemon *d;
    struct pstd_client *client; /* NULL: the reply goes to record */
    struct pst_str *record;
    const Pst__Control__Request *request;
    Pst__Control__Reply reply;
    struct pst_diag diag;
};

typedef enum pst_status (*command_fn)(struct call *call);

struct row {
    Pst__Control__Request__BodyCase body;
    const char *name;
    unsigned states; /* in which it is legal */
    bool changes;    /* needs a key; rank 0 only */
    command_fn run;  /* sends the reply itself if it returns PST_AGAIN */
};

static void add_packed(struct pst_str *out, const pstd_frame *frame)
{
    unsigned char *data = NULL;
    size_t size = 0;

    if (pstd_frame_pack(frame, PSTD_REPLY_MAX, &data, &size, NULL) == PST_OK)
        pst_str_addn(out, (const char *)data, size);
    else
        out->failed = 1;
    pst_free(data);
}

static void reply(struct call *call)
{
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    call->reply.id = call->request->id;
    frame.body_case = PST__CONTROL__FRAME__BODY_REPLY;
    frame.reply = &call->reply;
    if (call->client != NULL)
        pstd_client_send(call->client, &frame);
    else
        add_packed(call->record, &frame);
}

static void send_accepted(struct call *call, enum pst_status status,
                          const char *text, uint64_t seq, uint64_t run)
{
    Pst__Control__Accepted accepted = PST__CONTROL__ACCEPTED__INIT;

    accepted.seq = seq;
    accepted.run = run;
    call->reply.status = status;
    call->reply.text = (char *)text;
    if (status == PST_OK) {
        call->reply.body_case = PST__CONTROL__REPLY__BODY_ACCEPTED;
        call->reply.accepted = &accepted;
    }
    reply(call);
}

static char *text_or_empty(char *text)
{
    return text != NULL ? text : (char *)"";
}

static enum pst_status get_status(struct call *call)
{
    struct pstd_daemon *d = call->d;
    struct pstd_known *k = &d->known;
    Pst__Control__Status s = PST__CONTROL__STATUS__INIT;

    s.state = (char *)pstd_job_name(d->job.state);
    s.plan = (char *)d->plan;
    s.plan_digest = k->plan_digest;
    s.stages = k->stages;
    s.placement = text_or_empty(k->placement);
    s.run = k->run;
    s.step = k->step;
    s.steps = k->steps;
    s.loss = k->loss;
    s.lr = k->lr;
    s.grad_norm = k->grad_norm;
    s.step_seconds = k->step_s;
    s.tok_s = k->tok_s;
    s.bubble = k->bubble;
    s.seq = d->history.seq;
    s.uptime_seconds = 1e-3 * (double)(uv_now(&d->loop) - d->start_ms);
    s.checkpoint_step = k->checkpoint_step;
    s.checkpoint_dir = text_or_empty(k->checkpoint_dir);
    s.last_error = text_or_empty(k->last_error);
    s.paused = k->paused;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_STATUS_NOW;
    call->reply.status_now = &s;
    reply(call);
    return PST_AGAIN;
}

/* Shares of the measured step by class or cause. */
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

static void send_result(struct call *call, const struct pstd_result *from,
                        Pst__Control__RankResult *ranks,
                        Pst__Control__RankResult **pointers)
{
    Pst__Control__Result r = PST__CONTROL__RESULT__INIT;

    for (size_t i = 0; i < from->n_ranks; i++) {
        fill_rank(&from->ranks[i], (unsigned)i, &ranks[i]);
        pointers[i] = &ranks[i];
    }
    r.run = from->run;
    r.finished = true;
    r.status = from->diag.status;
    r.text = (char *)from->diag.text;
    r.first_step = from->first_step;
    r.steps = from->steps;
    r.loss = from->loss;
    r.losses = from->losses;
    r.n_losses = from->n_losses;
    r.step_seconds = from->step_s;
    r.first_step_us = from->first_step_us;
    r.gflops = from->gflops;
    r.bubble = from->bubble;
    r.tok_s = from->tok_s;
    r.stopped = from->stopped;
    r.checkpoint_step = from->checkpoint_step;
    r.ranks = pointers;
    r.n_ranks = from->n_ranks;
    r.processes = call->d->processes;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_RESULT;
    call->reply.result = &r;
    reply(call);
}

static enum pst_status get_result(struct call *call)
{
    const struct pstd_result *from = call->d->result;
    Pst__Control__RankResult *ranks, **pointers;

    if (from == NULL)
        return pst_diag_set(&call->diag, PST_ERR_NOT_FOUND,
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

static enum pst_status get_trace(struct call *call)
{
    Pst__Control__Trace trace;
    enum pst_status status;

    if (call->d->trace == NULL)
        return pst_diag_set(&call->diag, PST_ERR_NOT_FOUND,
                            "no step has been measured yet");
    status = pstd_trace_fill(call->d->trace, &trace, &call->diag);
    if (status != PST_OK)
        return status;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_TRACE;
    call->reply.trace = &trace;
    reply(call);
    pstd_trace_unfill(&trace);
    return PST_AGAIN;
}

static enum pst_status take_trace(struct call *call)
{
    if (call->d->known.paused)
        return pst_diag_set(&call->diag, PST_ERR_BUSY,
                            "the run is paused; resume it first");
    pstd_mailbox_control(call->d->mailbox, PSTD_CTL_TRACE);
    return PST_OK;
}

static enum pst_status get_log(struct call *call)
{
    const struct pstd_daemon *d = call->d;
    const uint64_t wanted = PST_MIN(call->request->get_log->n, PSTD_EVENTS);
    const uint64_t first =
        d->history.seq > wanted ? d->history.seq - wanted + 1 : 1;
    Pst__Control__EventList list = PST__CONTROL__EVENT_LIST__INIT;
    Pst__Control__Event *events[PSTD_EVENTS];
    pstd_frame *frames[PSTD_EVENTS] = {NULL};

    for (uint64_t seq = first; seq <= d->history.seq; seq++) {
        const struct pstd_packed *event = pstd_history_get(&d->history, seq);
        pstd_frame *frame = NULL;

        if (event != NULL &&
            pstd_frame_unpack(event->data + 4, event->size - 4,
                              PSTD_REQUEST_FIELD, &frame, NULL) == PST_OK) {
            frames[list.n_events] = frame;
            events[list.n_events++] = frame->event;
        }
    }
    list.events = events;
    call->reply.body_case = PST__CONTROL__REPLY__BODY_LOG;
    call->reply.log = &list;
    reply(call);
    for (size_t i = 0; i < list.n_events; i++)
        pstd_frame_free(frames[i]);
    return PST_AGAIN;
}

/* The reply goes first, then the events. */
static enum pst_status watch(struct call *call)
{
    send_accepted(call, PST_OK, "", call->d->history.seq, call->d->known.run);
    pstd_client_watch(call->client, call->request->watch->from);
    return PST_AGAIN;
}

/* Checks the options here, so that the answer is the user's, and hands them
 * to the exec thread as text, which every rank reads for itself. */
static enum pst_status begin_run(struct pstd_daemon *d,
                                 const Pst__Control__Train *train,
                                 struct pst_diag *diag)
{
    struct pst_exec_options ignored;
    struct pst_str order = {0};
    struct pstd_config config;
    enum pst_status status = pstd_config_copy(&config, d->config, diag);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < train->n_options && status == PST_OK; i++) {
        const Pst__Control__Option *o = train->options[i];

        status =
            pstd_config_set(&config, PSTD_OPT_TRAIN, o->name, o->value, diag);
        pst_str_addn(&order, o->name, strlen(o->name) + 1);
        pst_str_addn(&order, o->value, strlen(o->value) + 1);
    }
    if (status == PST_OK && config.data == NULL)
        status = pst_diag_set(diag, PST_ERR_USAGE, "--data FILE is missing");
    if (status == PST_OK)
        status = pstd_exec_options(&config, d->ranks / pstd_replicas(&config),
                                   true, &ignored, diag);
    if (status == PST_OK && order.failed)
        status = pst_diag_nomem(diag, order.len);
    if (status == PST_OK)
        status = pstd_mailbox_order(d->mailbox, PSTD_ORDER_TRAIN, order.text,
                                    order.len, diag);
    if (status == PST_OK) {
        d->known.run++;
        d->known.paused = d->known.pausing = false;
        d->known.step = 0;
        d->known.steps = config.steps;
        d->known.loss = NAN;
        pst_free(d->known.checkpoint_dir);
        d->known.checkpoint_dir =
            config.checkpoint != NULL
                ? pst_strdup(PST_TAG_DAEMON, config.checkpoint)
                : NULL;
        (void)pstd_job_go(&d->job, PSTD_JOB_TRAINING);
    }
    pst_str_fini(&order);
    pstd_config_fini(&config);
    return status;
}

static enum pst_status train(struct call *call)
{
    return begin_run(call->d, call->request->train, &call->diag);
}

static enum pst_status checkpoint(struct call *call)
{
    struct pstd_daemon *d = call->d;

    if (d->known.paused)
        return pst_diag_set(&call->diag, PST_ERR_BUSY,
                            "the run is paused; resume it first");
    if (d->known.checkpoint_dir == NULL)
        return pst_diag_set(&call->diag, PST_ERR_CONFIG,
                            "this run has no --checkpoint DIR");
    pstd_mailbox_control(d->mailbox, PSTD_CTL_CHECKPOINT);
    return PST_OK;
}

static enum pst_status pause_run(struct call *call)
{
    call->d->known.pausing = true;
    pstd_mailbox_control(call->d->mailbox, PSTD_CTL_PAUSE);
    return PST_OK;
}

static enum pst_status resume_run(struct call *call)
{
    /* One that was asked for and has not begun ends as soon as it does. */
    if (!call->d->known.paused && !call->d->known.pausing)
        return pst_diag_set(&call->diag, PST_ERR_BUSY, "the run is not paused");
    call->d->known.pausing = false;
    pstd_mailbox_control(call->d->mailbox, PSTD_CTL_RESUME);
    return PST_OK;
}

static enum pst_status stop(struct call *call)
{
    pstd_daemon_stop(call->d, "command", call->request->stop->now);
    return PST_OK;
}

#define BODY(name) PST__CONTROL__REQUEST__BODY_##name
static const struct row rows[] = {
    {BODY(GET_STATUS), "status", PSTD_IN_ANY, false, get_status},
    {BODY(GET_RESULT), "result", PSTD_IN_ANY, false, get_result},
    {BODY(GET_LOG), "log", PSTD_IN_ANY, false, get_log},
    {BODY(WATCH), "watch", PSTD_IN_ANY, false, watch},
    {BODY(GET_TRACE), "get-trace", PSTD_IN_ANY, false, get_trace},
    {BODY(TAKE_TRACE), "trace", PSTD_IN_TRAINING, true, take_trace},
    {BODY(TRAIN), "train", PSTD_IN_READY, true, train},
    {BODY(CHECKPOINT), "checkpoint", PSTD_IN_TRAINING, true, checkpoint},
    {BODY(PAUSE), "pause", PSTD_IN_TRAINING, true, pause_run},
    {BODY(RESUME), "resume", PSTD_IN_TRAINING, true, resume_run},
    {BODY(STOP), "stop", PSTD_IN_ANY & ~PSTD_IN_FAILED, true, stop},
};

static void tell(const struct call *call, const struct row *row,
                 enum pst_status status)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_REQUEST);
    pstd_note_text(&note, "command", row->name);
    pstd_note_text(&note, "key", call->request->key);
    pstd_note_int(&note, "uid", call->client->uid);
    pstd_note_int(&note, "pid", call->client->pid);
    pstd_note_text(&note, "status", pst_status_name(status));
    pstd_daemon_publish(call->d, &note);
}

/* True if this key had its answer before: it is sent again. */
static bool answer_again(struct call *call)
{
    const struct pstd_answers *all = &call->d->answers;
    const size_t n = PST_MIN(all->n, (size_t)PSTD_MAX_ANSWERS);

    for (size_t i = 0; i < n; i++) {
        const struct pstd_answer *a = &all->at[i];

        if (strcmp(a->key, call->request->key) == 0) {
            send_accepted(call, a->status, a->text, a->seq, a->run);
            return true;
        }
    }
    return false;
}

/* `seq` was the newest event before the command ran. */
static void answer_change(struct call *call, const struct row *row,
                          uint64_t seq, enum pst_status status)
{
    struct pstd_answers *all = &call->d->answers;
    struct pstd_answer *a = &all->at[all->n++ % PSTD_MAX_ANSWERS];
    const char *text = status == PST_OK ? "" : call->diag.text;

    (void)snprintf(a->key, sizeof(a->key), "%s", call->request->key);
    (void)snprintf(a->text, sizeof(a->text), "%s", text);
    a->status = status;
    a->seq = seq;
    a->run = call->d->known.run;
    tell(call, row, status);
    send_accepted(call, status, text, seq, call->d->known.run);
}

static enum pst_status check_change(struct call *call)
{
    const size_t len = strlen(call->request->key);

    if (len == 0 || len > PSTD_MAX_KEY)
        return pst_diag_set(&call->diag, PST_ERR_USAGE,
                            "the request needs a key of 1 to %d bytes",
                            PSTD_MAX_KEY);
    if (call->d->rank != 0)
        return pst_diag_set(&call->diag, PST_ERR_USAGE,
                            "this is rank %u; rank 0 takes commands",
                            call->d->rank);
    return PST_OK;
}

static const struct row *find_row(const Pst__Control__Request *request)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (rows[i].body == request->body_case)
            return &rows[i];
    return NULL;
}

void pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                  const Pst__Control__Request *request)
{
    struct call call = {.d = d, .client = client, .request = request};
    const struct row *row = find_row(request);
    const uint64_t seq = d->history.seq;
    enum pst_status status = PST_OK;

    pst__control__reply__init(&call.reply);
    pst_diag_init(&call.diag);
    if (row == NULL) {
        send_accepted(&call, PST_ERR_UNSUPPORTED,
                      "this penstockd (" PST_VERSION
                      ") does not know the request",
                      seq, 0);
        return;
    }
    if (row->changes)
        status = check_change(&call);
    if (status != PST_OK) {
        send_accepted(&call, status, call.diag.text, seq, 0);
        return;
    }
    if (row->changes && answer_again(&call))
        return;
    status = pstd_job_demand(&d->job, row->states, row->name, &call.diag);
    if (status == PST_OK)
        status = row->run(&call);
    if (status == PST_AGAIN)
        return;
    if (row->changes)
        answer_change(&call, row, seq, status);
    else
        send_accepted(&call, status, call.diag.text, seq, 0);
}

enum pst_status pstd_command_run(struct pstd_daemon *d, struct pst_diag *diag)
{
    const Pst__Control__Train train = PST__CONTROL__TRAIN__INIT;

    return begin_run(d, &train, diag);
}

void pstd_command_record(struct pstd_daemon *d, struct pst_str *out)
{
    const Pst__Control__Request request = PST__CONTROL__REQUEST__INIT;
    static const command_fn replies[] = {get_result, get_trace};

    for (size_t i = 0; i < PST_COUNT(replies); i++) {
        struct call call = {.d = d, .record = out, .request = &request};

        pst__control__reply__init(&call.reply);
        pst_diag_init(&call.diag);
        if (replies[i](&call) != PST_AGAIN)
            continue; /* there is none */
    }
}
