// SPDX-License-Identifier: Apache-2.0
/* Serves one client of the control socket. */
#include "daemon/loop/control.h"

#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"

/* Requests that a client may send at once while steps run. */
#define REQUESTS 200
/* Average number of requests per second that a client may send while steps run.
 */
#define REQUESTS_S 100

struct write {
    uv_write_t req;
    unsigned char *data;
    size_t size;
};

static void resume_reading(struct pstd_client *client);

static void on_closed(uv_handle_t *handle)
{
    struct pstd_client *client = handle->data;
    struct pstd_control *control = client->control;
    struct pstd_client **at = &control->clients;

    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    control->n_clients--;
    control->held -= client->in.cap;
    pstd_frames_fini(&client->in);
    pst_free(client);
}

void pstd_client_close(struct pstd_client *client)
{
    if (client->closing)
        return;
    client->closing = true;
    client->watching = false;
    if (client->control->hooks.gone != NULL)
        client->control->hooks.gone(client->control->hooks.ctx, client);
    uv_close((uv_handle_t *)&client->pipe, on_closed);
}

static size_t queued_bytes(const struct pstd_client *client)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&client->pipe);
}

static void on_written(uv_write_t *req, int err)
{
    struct write *w = (struct write *)req;
    struct pstd_client *client = req->handle->data;

    client->control->queued -= w->size;
    pst_free(w->data);
    pst_free(w);
    if (err != 0) {
        pstd_client_close(client);
        return;
    }
    client->active_ms = uv_now(client->control->loop);
    pstd_client_continue(client);
}

/* Sends data, and takes it. Bytes that the socket accepts at once need no write
 * request. */
static void send_owned(struct pstd_client *client, unsigned char *data,
                       size_t size)
{
    uv_stream_t *stream = (uv_stream_t *)&client->pipe;
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)size);
    struct write *w;
    int n;

    if (client->closing)
        goto drop;
    n = uv_try_write(stream, &buf, 1);
    if (n == (int)size)
        goto drop;
    if (n < 0 && n != UV_EAGAIN)
        goto fail;
    if (n < 0)
        n = 0;
    w = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*w));
    if (w == NULL)
        goto fail;
    w->data = data;
    w->size = size;
    buf = uv_buf_init((char *)data + n, (unsigned)size - (unsigned)n);
    if (uv_write(&w->req, stream, &buf, 1, on_written) == 0) {
        client->control->queued += size;
        return;
    }
    pst_free(w);
fail:
    pstd_client_close(client);
drop:
    pst_free(data);
}

static void send_packed(struct pstd_client *client, const void *data,
                        size_t size)
{
    unsigned char *copy = pst_alloc(PST_TAG_DAEMON, size);

    if (copy == NULL) {
        pstd_client_close(client);
        return;
    }
    memcpy(copy, data, size);
    send_owned(client, copy, size);
}

void pstd_client_send(struct pstd_client *client, const pstd_frame *frame)
{
    unsigned char *data = NULL;
    size_t size = 0;

    if (pstd_frame_pack(frame, PSTD_REPLY_MAX, &data, &size, NULL) != PST_OK)
        pstd_client_close(client);
    else
        send_owned(client, data, size);
}

static void send_gap(struct pstd_client *client, uint64_t dropped)
{
    Pst__Control__Event event = PST__CONTROL__EVENT__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    event.time_us = pstd_now_us();
    event.name = (char *)"gap";
    event.dropped = dropped;
    frame.body_case = PST__CONTROL__FRAME__BODY_EVENT;
    frame.event = &event;
    pstd_client_send(client, &frame);
}

void pstd_client_send_events(struct pstd_client *client)
{
    struct pstd_history *history = client->control->history;
    const uint64_t oldest = pstd_history_oldest(history);
    /* number of consecutive events that cannot be read back */
    uint64_t lost = 0;

    if (!client->watching || client->closing || queued_bytes(client) > 0)
        return;
    if (client->event < oldest) {
        send_gap(client, oldest - client->event);
        client->event = oldest;
    }
    while (!client->closing && client->event <= history->seq &&
           queued_bytes(client) < PSTD_QUEUE) {
        const struct pstd_packed *event =
            pstd_history_get(history, client->event++);

        lost += event == NULL;
        if (event == NULL && client->event <= history->seq)
            continue;
        if (lost > 0)
            send_gap(client, lost);
        lost = 0;
        if (event != NULL && !client->closing)
            send_packed(client, event->data, event->size);
    }
}

void pstd_client_watch(struct pstd_client *client, uint64_t from)
{
    client->event = from > 0 ? from : client->control->history->seq + 1;
    client->watching = !client->closing;
    pstd_client_send_events(client);
}

void pstd_client_send_fault(struct pstd_client *client,
                            const struct pst_diag *diag)
{
    Pst__Control__Reply reply = PST__CONTROL__REPLY__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    reply.status = diag->status;
    reply.text = (char *)diag->text;
    reply.error_id = (char *)pst_error_id(diag->error);
    frame.body_case = PST__CONTROL__FRAME__BODY_REPLY;
    frame.reply = &reply;
    pstd_client_send(client, &frame);
}

static enum pst_status accept_hello(struct pstd_client *client,
                                    const Pst__Control__Hello *hello,
                                    struct pst_diag *diag)
{
    if (hello->min_proto > PSTD_PROTO || hello->proto < PSTD_PROTO)
        return pst_diag_set(diag, PST_E_CONTROL_VERSION,
                            "this penstockd speaks protocol %d, the client "
                            "%u to %u",
                            PSTD_PROTO, hello->min_proto, hello->proto);
    client->greeted = true;
    return PST_OK;
}

static enum pst_status handle_frame(struct pstd_client *client,
                                    const pstd_frame *frame,
                                    struct pst_diag *diag)
{
    if (frame->body_case == PST__CONTROL__FRAME__BODY_HELLO)
        return accept_hello(client, frame->hello, diag);
    if (!client->greeted)
        return pst_diag_set(diag, PST_E_CONTROL_REQUEST,
                            "a frame before Hello");
    if (frame->body_case != PST__CONTROL__FRAME__BODY_REQUEST)
        return pst_diag_set(diag, PST_E_CONTROL_FRAME,
                            "bad frame: neither Hello nor Request");
    const struct pstd_control_hooks *hooks = &client->control->hooks;

    hooks->request(hooks->ctx, client, frame->request);
    return PST_OK;
}

/* True if the client's next request may be answered. Requests are answered one
 * at a time; the client's rate limit, and how fast it reads answers, delay the
 * next one. */
static bool may_handle_next(struct pstd_client *client)
{
    struct pstd_control *control = client->control;
    const uint64_t now = uv_now(client->control->loop);

    if (client->closing || queued_bytes(client) >= PSTD_QUEUE ||
        client->asked >= PSTD_MAX_ASKED)
        return false;
    client->credit += 1e-3 * REQUESTS_S * (double)(now - client->credit_ms);
    client->credit = PST_MIN(client->credit, (double)REQUESTS);
    client->credit_ms = now;
    if (client->credit < 1 && pstd_control_busy(control)) {
        pstd_control_retry_later(client->control);
        return false;
    }
    if (control->queued > control->max_queued)
        pstd_control_drop_slowest(client->control);
    return !client->closing;
}

/* Handles the next frame. False: there is no complete frame, or the connection
 * ends. */
static bool handle_next_frame(struct pstd_client *client)
{
    struct pst_diag diag;
    pstd_frame *frame = NULL;
    enum pst_status status = pstd_frames_pop(&client->in, &frame, &diag);

    if (status == PST_OK) {
        client->half_since_ms = 0;
        client->active_ms = uv_now(client->control->loop);
        client->credit = PST_MAX(client->credit - 1, 0);
        status = handle_frame(client, frame, &diag);
        pstd_frame_free(frame);
    }
    if (status == PST_OK)
        return true;
    if (status != PST_AGAIN) {
        pstd_client_send_fault(client, &diag);
        pstd_client_close(client);
    }
    return false;
}

static void handle_frames(struct pstd_client *client)
{
    struct pstd_control *control = client->control;
    const size_t before = client->in.cap;
    bool more = true;

    while (more && may_handle_next(client))
        more = handle_next_frame(client);
    if (client->in.n == 0)
        pstd_frames_fini(&client->in);
    control->held += client->in.cap - before;
    if (client->in.n == 0 || more)
        client->half_since_ms = 0;
    else if (client->half_since_ms == 0)
        client->half_since_ms = uv_now(client->control->loop);
    if (more && !client->closing && !client->paused) {
        client->paused = true;
        (void)uv_read_stop((uv_stream_t *)&client->pipe);
    } else if (!more && !client->closing && client->paused) {
        resume_reading(client);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pstd_client *client = handle->data;
    struct pstd_control *control = client->control;

    (void)suggested;
    *buf = uv_buf_init(control->chunk, sizeof(control->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pstd_client *client = stream->data;
    struct pstd_control *control = client->control;
    const size_t before = client->in.cap;
    enum pst_status status;

    if (n < 0) {
        pstd_client_close(client);
        return;
    }
    status = pstd_frames_push(&client->in, buf->base, (size_t)n, NULL);
    control->held += client->in.cap - before;
    if (status != PST_OK) {
        pstd_client_close(client);
        return;
    }
    handle_frames(client);
    if (control->held > control->max_held && client->in.n > 0)
        pstd_control_drop(client, "too much is held in unfinished frames");
}

static void resume_reading(struct pstd_client *client)
{
    client->paused = false;
    if (uv_read_start((uv_stream_t *)&client->pipe, on_alloc, on_read) != 0)
        pstd_client_close(client);
}

void pstd_client_continue(struct pstd_client *client)
{
    pstd_client_send_events(client);
    if (!client->closing && client->paused)
        handle_frames(client);
}

static void send_hello(struct pstd_client *client)
{
    const struct pstd_identity *identity = &client->control->identity;
    Pst__Control__Hello hello = PST__CONTROL__HELLO__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    hello.proto = PSTD_PROTO;
    hello.min_proto = PSTD_PROTO;
    hello.version = (char *)PST_VERSION;
    hello.job = (char *)identity->job;
    hello.rank = identity->rank;
    hello.ranks = identity->ranks;
    hello.pid = (uint64_t)getpid();
    hello.level = (char *)"admin";
    hello.run_id = (char *)identity->run_id;
    hello.first_event = identity->first_event;
    hello.journal = (char *)identity->journal;
    frame.body_case = PST__CONTROL__FRAME__BODY_HELLO;
    frame.hello = &hello;
    pstd_client_send(client, &frame);
}

/* Refuses clients of other users. The mode of the socket already excludes them,
 * unless it was changed. */
static enum pst_status check_user(struct pstd_client *client,
                                  struct pst_diag *diag)
{
    uv_os_fd_t fd = -1;
    enum pst_status status;
    const int err = uv_fileno((uv_handle_t *)&client->pipe, &fd);

    if (err != 0)
        return pst_diag_set(diag, PST_E_CONTROL_LISTEN,
                            "a new connection to rank %u has no descriptor: %s",
                            client->control->identity.rank, uv_strerror(err));
    status = pstd_socket_peer(fd, &client->uid, &client->pid, diag);
    if (status != PST_OK)
        return status;
    if (client->uid != geteuid() && client->uid != 0)
        return pst_diag_set(diag, PST_E_SOCKET_OTHER_USER,
                            "this job is user %u's, you are user %u; only "
                            "its owner and root are served",
                            (unsigned)geteuid(), client->uid);
    return PST_OK;
}

enum pst_status pstd_client_new(struct pstd_control *c)
{
    struct pstd_client *client = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*client));
    struct pst_diag diag;
    enum pst_status status;

    if (client == NULL)
        return PST_ERR_NOMEM;
    client->control = c;
    client->serial = ++c->serials;
    client->active_ms = client->credit_ms = uv_now(c->loop);
    client->credit = REQUESTS;
    pstd_frames_init(&client->in, c->max_request, PSTD_REQUEST_FIELD);
    if (uv_pipe_init(c->loop, &client->pipe, 0) != 0) {
        pst_free(client);
        return PST_ERR_NOMEM;
    }
    client->pipe.data = client;
    client->next = c->clients;
    c->clients = client;
    c->n_clients++;
    if (uv_accept((uv_stream_t *)&c->pipe, (uv_stream_t *)&client->pipe) != 0) {
        pstd_client_close(client);
        return PST_OK;
    }
    status = check_user(client, &diag);
    if (status == PST_OK) {
        send_hello(client);
        if (!client->closing)
            resume_reading(client);
    } else {
        pstd_client_send_fault(client, &diag);
        pstd_client_close(client);
    }
    return PST_OK;
}
