// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/control.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define AGAIN_MS 50  /* interval at which waiting connections are retried */
#define ACCEPTS  100 /* maximum connections accepted per AGAIN_MS */
/* A client is not dropped within this time of its last activity. */
#define GRACE_MS 100
/* clients may use 1 / SPARE of the file descriptors of the process */
#define SPARE 4
/* A client without requests is dropped after IDLE * --client-timeout. */
#define IDLE 30
/* A watcher with so many queued bytes may be stuck. */
#define STUCK     (256u << 10)
#define REPORT_MS 1000 /* minimum interval of events about dropped clients */

static void emit_drop(struct pstd_control *c, const struct pstd_client *client,
                      const char *reason)
{
    const uint64_t now = uv_now(c->loop);
    struct pstd_note note;

    c->dropped++;
    if (c->reported > 0 && now - c->reported_ms < REPORT_MS)
        return; /* many dropped clients must not flood the log */
    pstd_note_init(&note, PSTD_EVENT_CLIENT_DROPPED);
    pstd_note_int(&note, "uid", client->uid);
    pstd_note_int(&note, "pid", client->pid);
    pstd_note_text(&note, "reason", reason);
    pstd_note_int(&note, "dropped", (int64_t)(c->dropped - c->reported));
    c->reported = c->dropped;
    c->reported_ms = now;
    c->hooks.publish(c->hooks.ctx, &note);
}

void pstd_control_drop(struct pstd_client *client, const char *reason)
{
    struct pst_diag diag;

    if (client->closing)
        return;
    (void)pst_diag_set(&diag, PST_E_JOB_MISSED,
                       "penstockd ends this connection: %s; connect again",
                       reason);
    if (uv_stream_get_write_queue_size((uv_stream_t *)&client->pipe) == 0)
        pstd_client_send_fault(client, &diag);
    pstd_client_close(client);
    emit_drop(client->control, client, reason);
}

static bool is_stuck(const struct pstd_client *client)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&client->pipe) >
           0;
}

bool pstd_control_busy(const struct pstd_control *c)
{
    return c->hooks.busy == NULL || c->hooks.busy(c->hooks.ctx);
}

void pstd_control_drop_slowest(struct pstd_control *c)
{
    struct pstd_client *worst = NULL;

    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        if (!at->closing && is_stuck(at) &&
            (worst == NULL || at->active_ms < worst->active_ms))
            worst = at;
    if (worst != NULL)
        pstd_control_drop(worst, "it does not read its answers");
}

/* Returns how important a client is, from 0 to 3: the least important one is
 * dropped first. */
static unsigned importance_of(const struct pstd_client *client)
{
    if (!client->greeted)
        return 0;
    if (is_stuck(client))
        return 1;
    return client->watching || client->asked > 0 ? 3 : 2;
}

static bool is_dropped_before(const struct pstd_client *a,
                              const struct pstd_client *b)
{
    const unsigned rank_a = importance_of(a), rank_b = importance_of(b);

    return rank_a != rank_b ? rank_a < rank_b : a->active_ms < b->active_ms;
}

/* If all slots are taken, drops a client to free one. It belongs to our user or
 * to root, whichever has more connections, so that neither can exclude the
 * other. False: no slot is free, and no client can be dropped now. */
static bool drop_one_if_full(struct pstd_control *c)
{
    const uint64_t now = uv_now(c->loop);
    struct pstd_client *worst = NULL;
    unsigned open = 0, owners = 0;
    bool of_owner;

    for (struct pstd_client *at = c->clients; at != NULL; at = at->next) {
        open += !at->closing;
        owners += !at->closing && at->uid == geteuid();
    }
    if (open < c->max_clients)
        return true;
    of_owner = 2 * owners >= open;
    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        if (!at->closing && now - at->active_ms >= GRACE_MS &&
            (at->uid == geteuid()) == of_owner &&
            (worst == NULL || is_dropped_before(at, worst)))
            worst = at;
    if (worst == NULL)
        return false;
    pstd_control_drop(worst, "others need its place");
    return true;
}

/* Accepts a waiting connection; if that is not possible now, the connection
 * stays pending and is retried. */
static void accept_waiting(struct pstd_control *c)
{

    if (!c->waiting || !c->open)
        return;
    if (!pstd_control_busy(c))
        c->accepts = ACCEPTS;
    if (c->accepts == 0 || !drop_one_if_full(c)) {
        pstd_control_retry_later(c);
        return;
    }
    c->accepts--;
    c->waiting = false;
    if (pstd_client_new(c) != PST_OK) {
        c->waiting = true;
        pstd_control_retry_later(c);
    }
}

static void on_again(uv_timer_t *timer)
{
    struct pstd_control *c = timer->data;

    c->accepts = ACCEPTS;
    accept_waiting(c);
    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        pstd_client_continue(at);
}

void pstd_control_retry_later(struct pstd_control *c)
{

    if (c->open && !uv_is_active((uv_handle_t *)&c->again))
        (void)uv_timer_start(&c->again, on_again, AGAIN_MS, 0);
}

static void on_connection(uv_stream_t *server, int err)
{
    struct pstd_control *c = server->data;

    if (err != 0)
        return;
    c->waiting = true;
    accept_waiting(c);
    if (c->accepts < ACCEPTS)
        pstd_control_retry_later(c); /* its timer resets c->accepts */
}

/* Returns the maximum number of clients. It leaves file descriptors for
 * checkpoints and data. */
static unsigned compute_max_clients(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return PSTD_MAX_CLIENTS / SPARE;
    return (unsigned)PST_MAX(
        PST_MIN((uint64_t)files.rlim_cur / SPARE, (uint64_t)PSTD_MAX_CLIENTS),
        8);
}

void pstd_control_init(struct pstd_control *c, uv_loop_t *loop,
                       struct pstd_history *history,
                       struct pstd_control_hooks hooks, double client_timeout)
{
    memset(c, 0, sizeof(*c));
    c->loop = loop;
    c->history = history;
    c->hooks = hooks;
    c->client_timeout = client_timeout;
    c->max_request = PSTD_REQUEST_MAX;
    c->max_held = PSTD_ALL_FRAMES;
    c->max_queued = PSTD_ALL_QUEUES;
    c->listener.fd = c->listener.lock_fd = -1;
}

enum pst_status pstd_control_open(struct pstd_control *c, const char *path,
                                  bool own_dir, struct pstd_identity identity,
                                  struct pst_diag *diag)
{
    enum pst_status status =
        pstd_socket_bind(path, own_dir, &c->listener, diag);
    int err;

    if (status != PST_OK)
        return status;
    err = uv_pipe_init(c->loop, &c->pipe, 0);
    if (err == 0) {
        (void)uv_timer_init(c->loop, &c->again);
        c->again.data = c;
        c->identity = identity;
        c->accepts = ACCEPTS;
        c->max_clients = compute_max_clients();
        c->open = true;
        c->pipe.data = c;
        err = uv_pipe_open(&c->pipe, c->listener.fd);
    }
    if (err == 0) {
        c->listener.fd = -1; /* owned by the pipe now */
        err = uv_listen((uv_stream_t *)&c->pipe, 64, on_connection);
    }
    if (err == 0)
        return PST_OK;
    status = pst_diag_set(diag, PST_E_CONTROL_LISTEN, "cannot listen at %s: %s",
                          path, uv_strerror(err));
    pstd_control_close(c);
    return status;
}

void pstd_control_close(struct pstd_control *c)
{

    if (c->open) {
        uv_close((uv_handle_t *)&c->pipe, NULL);
        uv_close((uv_handle_t *)&c->again, NULL);
    }
    c->open = false;
    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        pstd_client_close(at);
    pstd_socket_unbind(&c->listener);
}

void pstd_control_send_events(struct pstd_control *c)
{
    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        pstd_client_send_events(at);
}

bool pstd_control_watched(const struct pstd_control *c)
{
    for (const struct pstd_client *at = c->clients; at != NULL; at = at->next)
        if (at->watching)
            return true;
    return false;
}

static void send_heartbeat(struct pstd_client *client)
{
    Pst__Control__Event event = PST__CONTROL__EVENT__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    event.time_us = pstd_now_us();
    event.name = (char *)"heartbeat";
    frame.body_case = PST__CONTROL__FRAME__BODY_EVENT;
    frame.event = &event;
    pstd_client_send(client, &frame);
}

/* Returns why this client has to be dropped, or NULL. */
static const char *find_fault(struct pstd_client *client, uint64_t now,
                              double limit_ms)
{
    const size_t queued =
        uv_stream_get_write_queue_size((uv_stream_t *)&client->pipe);
    const double quiet = (double)(now - client->active_ms);

    if (queued < client->queued || client->asked > 0)
        client->active_ms = now; /* the client reads, or waits for outputs */
    client->queued = queued;
    if (client->half_since_ms > 0 &&
        (double)(now - client->half_since_ms) > limit_ms)
        return "a frame was begun and not finished";
    if (!client->greeted && quiet > limit_ms)
        return "it does not say Hello";
    if (queued > (client->watching ? STUCK : 0) && quiet > limit_ms)
        return "it does not read its answers";
    if (!client->watching && quiet > IDLE * limit_ms)
        return "it asks nothing";
    return NULL;
}

void pstd_control_tick(struct pstd_control *c, bool heartbeat)
{
    const uint64_t now = uv_now(c->loop);

    for (struct pstd_client *at = c->clients; at != NULL; at = at->next) {
        const char *fault =
            at->closing ? NULL : find_fault(at, now, 1e3 * c->client_timeout);

        if (fault != NULL)
            pstd_control_drop(at, fault);
        else if (heartbeat && at->watching && !is_stuck(at))
            send_heartbeat(at);
    }
}
