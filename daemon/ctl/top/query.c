// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/top/query.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/job/conn.h"
#include "daemon/ctl/print.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"

#define WAIT_MS 300 /* time limit for one reply */
/* maximum number of events requested from rank 0, which keeps as many */
#define MANY 1024
/* number of events requested from other ranks, to find their newest step */
#define FEW 64

struct mark {
    uint64_t time_us, step; /* step of an event, and its time; 0: none yet */
};

struct pstctl_ask {
    const struct pstd_config *config;
    /* connection to each rank; fd -1: none */
    struct pstctl_conn conns[PSTCTL_TOP_RANKS];
    uint64_t pids[PSTCTL_TOP_RANKS]; /* pids of the ranks' daemons */
    uint64_t seen[PSTCTL_TOP_RANKS]; /* number of each rank's last event read */
    uint64_t newest;                 /* number of rank 0's newest event */
    char path[PSTD_SOCKET_PATH + 1]; /* path of rank 0's socket */
    /* First and last step of rank 0 between which the mean step time is
     * measured. */
    struct mark first, last;
};

enum pst_status pstctl_ask_new(const struct pstd_config *config,
                               struct pstctl_ask **ret, struct pst_diag *diag)
{
    struct pstctl_ask *ask = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*ask));

    if (ask == NULL)
        return pst_diag_nomem(diag, sizeof(*ask));
    ask->config = config;
    for (unsigned i = 0; i < PSTCTL_TOP_RANKS; i++)
        ask->conns[i].fd = -1;
    *ret = ask;
    return PST_OK;
}

void pstctl_ask_free(struct pstctl_ask *ask)
{
    if (ask == NULL)
        return;
    for (unsigned i = 0; i < PSTCTL_TOP_RANKS; i++)
        pstctl_close(&ask->conns[i]);
    pst_free(ask);
}

/* Returns the reply to a request. NULL: there was none in time; the connection
 * is then closed, and opened again at the next update. */
static pstd_frame *call_rank(struct pstctl_conn *conn, pstctl_request *request,
                             Pst__Control__Reply__BodyCase wanted)
{
    const double until = pst_now() + 1e-3 * WAIT_MS;
    enum pst_status status = pstctl_send(conn, request, NULL);

    while (status == PST_OK) {
        const double left = until - pst_now();
        pstd_frame *frame = NULL;

        status = pstctl_read(conn, left > 0 ? (int)(1e3 * left) + 1 : 0, &frame,
                             NULL);
        if (status == PST_OK &&
            frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
            frame->reply->id == request->id &&
            frame->reply->body_case == wanted)
            return frame;
        if (status == PST_OK)
            pstd_frame_free(frame);
    }
    pstctl_close(conn);
    return NULL;
}

/* --- connections ---------------------------------------------------------- */

/* Makes the path of a rank's socket beside that of rank 0: rank0.sock,
 * rank1.sock ... False: the path is not known, since the socket of rank 0 has
 * another name. */
static bool make_path(const struct pstctl_ask *ask, unsigned rank, char *ret,
                      size_t size)
{
    const char *end = strstr(ask->path, "/rank0.sock");

    if (rank == 0) {
        (void)snprintf(ret, size, "%s", ask->path);
        return true;
    }
    if (end == NULL || strcmp(end, "/rank0.sock") != 0)
        return false;
    return snprintf(ret, size, "%.*s/rank%u.sock", (int)(end - ask->path),
                    ask->path, rank) < (int)size;
}

static bool connect_rank(struct pstctl_ask *ask, unsigned rank)
{
    struct pstctl_conn *conn = &ask->conns[rank];
    char path[PSTD_SOCKET_PATH + 1];

    if (conn->fd >= 0)
        return true;
    if (!make_path(ask, rank, path, sizeof(path)) ||
        pstctl_open_begin(path, conn, NULL) != PST_OK)
        return false;
    if (pstctl_open_finish(conn, WAIT_MS, NULL) != PST_OK) {
        pstctl_close(conn);
        return false;
    }
    if (conn->pid != ask->pids[rank]) /* the rank was restarted */
        ask->seen[rank] = 0;
    ask->pids[rank] = conn->pid;
    return true;
}

/* Connects to rank 0: by its path if that is known, else by the options. */
static bool connect_first(struct pstctl_ask *ask, struct pstctl_top_view *view)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (ask->conns[0].fd >= 0 || (ask->path[0] != '\0' && connect_rank(ask, 0)))
        return true;
    if (pstctl_connect(ask->config, &ask->conns[0], &diag) != PST_OK) {
        ask->conns[0].fd = -1;
        (void)snprintf(view->why, sizeof(view->why), "%.200s", diag.text);
        return false;
    }
    (void)snprintf(ask->path, sizeof(ask->path), "%s", ask->conns[0].path);
    if (ask->conns[0].pid != ask->pids[0])
        ask->seen[0] = 0;
    ask->pids[0] = ask->conns[0].pid;
    return true;
}

/* --- events --------------------------------------------------------------- */

static void add_loss(struct pstctl_top_view *v, double loss)
{
    if (v->n_losses == PSTCTL_TOP_LOSSES) {
        v->n_losses--;
        memmove(v->losses, v->losses + 1, v->n_losses * sizeof(v->losses[0]));
    }
    v->losses[v->n_losses++] = loss;
}

static void add_event(struct pstctl_top_view *v, const pstctl_event *event)
{
    struct pst_str line = {0};
    struct pstctl_top_event *e;

    if (v->n_events == PSTCTL_TOP_EVENTS) {
        v->n_events--;
        memmove(v->events, v->events + 1, v->n_events * sizeof(v->events[0]));
    }
    e = &v->events[v->n_events++];
    pstctl_event_line(event, &line);
    /* Drops the date from "2026-01-31T10:11:12.123Z step ...". */
    (void)snprintf(e->text, sizeof(e->text), "%.8s%.240s",
                   line.len > 24 ? line.text + 11 : "",
                   line.len > 24 ? line.text + 24 : pst_str_text(&line));
    e->level = event->level[0];
    pst_str_fini(&line);
}

static void update_rank(struct pstctl_top_rank *r, const pstctl_event *event)
{
    if (strcmp(event->name, "step") == 0) {
        r->step = pstctl_number(event, "step_s");
        r->forward = pstctl_number(event, "forward_s");
        r->backward = pstctl_number(event, "backward_s");
        r->optim = pstctl_number(event, "optim_s");
        r->recv = pstctl_number(event, "wait_recv_s");
        r->other = pstctl_number(event, "wait_other_s");
    }
}

static bool is_shown(const pstctl_event *event)
{
    return strcmp(event->name, "step") != 0 &&
           strcmp(event->name, "totals") != 0 &&
           strcmp(event->name, "request") != 0 &&
           strcmp(event->name, "heartbeat") != 0;
}

/* Updates the first and the last known step of the run, between which the mean
 * step time is measured. Begins anew after a rollback, a pause, or a change of
 * the number of microbatches. */
static void track_step_time(struct pstctl_ask *ask, const pstctl_event *event)
{
    const struct mark now = {event->time_us,
                             (uint64_t)pstctl_integer(event, "step")};

    if (strcmp(event->name, "train_begin") == 0 ||
        strcmp(event->name, "microbatches") == 0 ||
        strcmp(event->name, "continued") == 0)
        ask->first = (struct mark){0};
    if (strcmp(event->name, "step") != 0)
        return;
    if (ask->first.time_us == 0 || now.step <= ask->last.step)
        ask->first = now;
    ask->last = now;
}

/* Takes an evaluation of a named set. Evaluations are dropped if they name more
 * sets than a run can have. */
static void take_set(struct pstctl_top_view *v, const pstctl_event *event)
{
    const char *name = pstctl_text(event, "set");
    unsigned i = 0;

    while (name != NULL && i < v->n_sets && strcmp(v->sets[i].name, name) != 0)
        i++;
    if (name == NULL || i == PSTD_MAX_SETS)
        return;
    if (i == v->n_sets)
        (void)snprintf(v->sets[v->n_sets++].name, sizeof(v->sets[i].name), "%s",
                       name);
    v->sets[i].loss = pstctl_number(event, "loss");
}

static void handle_event(struct pstctl_ask *ask, struct pstctl_top_view *v,
                         unsigned rank, const pstctl_event *event)
{
    update_rank(&v->rank[rank], event);
    if (rank != 0)
        return;
    track_step_time(ask, event);
    if (strcmp(event->name, "step") == 0)
        add_loss(v, pstctl_number(event, "loss"));
    if (strcmp(event->name, "train_begin") == 0) {
        v->eval_loss = v->eval_best = NAN;
        v->n_sets = 0;
    }
    if (strcmp(event->name, "eval_set") == 0)
        take_set(v, event);
    if (strcmp(event->name, "evaluated") == 0) {
        v->eval_loss = pstctl_number(event, "loss");
        v->eval_best = pstctl_number(event, "best_loss");
    }
    if (is_shown(event))
        add_event(v, event);
}

static bool ask_log(struct pstctl_ask *ask, struct pstctl_top_view *v,
                    unsigned rank)
{
    Pst__Control__GetLog get = PST__CONTROL__GET_LOG__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *frame;

    get.n = rank != 0 ? FEW
            : ask->newest > ask->seen[0]
                ? (uint32_t)PST_MIN(ask->newest - ask->seen[0], (uint64_t)MANY)
                : 1;
    request.body_case = PST__CONTROL__REQUEST__BODY_GET_LOG;
    request.get_log = &get;
    frame =
        call_rank(&ask->conns[rank], &request, PST__CONTROL__REPLY__BODY_LOG);
    if (frame == NULL)
        return false;
    for (size_t i = 0; i < frame->reply->log->n_events; i++) {
        const pstctl_event *event = frame->reply->log->events[i];

        if (event->seq <= ask->seen[rank])
            continue;
        ask->seen[rank] = event->seq;
        handle_event(ask, v, rank, event);
    }
    pstd_frame_free(frame);
    return true;
}

/* --- the job -------------------------------------------------------------- */

/* Estimates the remaining time from the mean time of known steps, or from the
 * reported step time if only one step is known. */
static void find_eta(const struct pstctl_ask *ask, struct pstctl_top_view *v)
{
    double a_step = v->step_s;

    if (ask->first.time_us > 0 && ask->last.step > ask->first.step &&
        ask->last.time_us > ask->first.time_us)
        a_step = 1e-6 * (double)(ask->last.time_us - ask->first.time_us) /
                 (double)(ask->last.step - ask->first.step);
    v->eta =
        strcmp(v->state, "training") == 0 && v->steps > v->step && a_step > 0
            ? a_step * (double)(v->steps - v->step)
            : (double)NAN;
}

/* Queries the status of a rank; NULL: no reply. */
static pstd_frame *call_status(struct pstctl_ask *ask, unsigned rank,
                               struct pstctl_top_view *v)
{
    Pst__Control__GetStatus get = PST__CONTROL__GET_STATUS__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *frame;

    request.body_case = PST__CONTROL__REQUEST__BODY_GET_STATUS;
    request.get_status = &get;
    frame = call_rank(&ask->conns[rank], &request,
                      PST__CONTROL__REPLY__BODY_STATUS_NOW);
    if (frame != NULL) {
        const uint64_t rss = frame->reply->status_now->rss_bytes;

        v->rank[rank].rss = rss > 0 ? (double)rss : (double)NAN;
    }
    return frame;
}

static bool ask_rank(struct pstctl_ask *ask, unsigned rank,
                     struct pstctl_top_view *v)
{
    pstd_frame *frame =
        connect_rank(ask, rank) ? call_status(ask, rank, v) : NULL;

    if (frame == NULL)
        return false;
    pstd_frame_free(frame);
    return ask_log(ask, v, rank);
}

static bool ask_status(struct pstctl_ask *ask, struct pstctl_top_view *v)
{
    const Pst__Control__Status *s;
    pstd_frame *frame = call_status(ask, 0, v);

    if (frame == NULL)
        return false;
    s = frame->reply->status_now;
    (void)snprintf(v->job, sizeof(v->job), "%s", ask->conns[0].job);
    (void)snprintf(v->state, sizeof(v->state), "%s", s->state);
    (void)snprintf(v->error, sizeof(v->error), "%s", s->last_error);
    ask->newest = s->seq;
    v->ranks = ask->conns[0].ranks;
    v->stages = s->stages;
    v->paused = s->paused;
    v->step = s->step;
    v->steps = s->steps;
    v->answered = s->answered;
    v->refused = s->refused;
    v->waiting = s->waiting;
    v->answer_s = s->answer_seconds;
    v->loss = s->loss;
    v->lr = s->lr;
    v->step_s = s->step_seconds;
    v->tok_s = s->tok_s;
    v->bubble = s->bubble;
    v->checkpoint = s->checkpoint_step;
    for (unsigned i = 0; i < v->ranks && i < PSTCTL_TOP_RANKS; i++) {
        struct pst_str stages = {0};

        pstd_print_stages(s->placement, i, &stages);
        (void)snprintf(v->rank[i].stages, sizeof(v->rank[i].stages), "%.60s",
                       pst_str_text(&stages));
        pst_str_fini(&stages);
    }
    pstd_frame_free(frame);
    return true;
}

void pstctl_ask_all(struct pstctl_ask *ask, struct pstctl_top_view *v)
{
    v->eta = NAN;
    (void)snprintf(v->why, sizeof(v->why), "the job does not answer");
    v->answers =
        connect_first(ask, v) && ask_status(ask, v) && ask_log(ask, v, 0);
    if (!v->answers)
        return;
    find_eta(ask, v);
    for (unsigned i = 1; i < v->ranks && i < PSTCTL_TOP_RANKS; i++) {
        v->rank[i].answers = ask_rank(ask, i, v);
        if (!v->rank[i].answers) {
            pstctl_top_clear_rank(&v->rank[i]);
            ask->seen[i] = 0;
        }
    }
    v->rank[0].answers = true;
}
