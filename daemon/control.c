// SPDX-License-Identifier: Apache-2.0
#include "daemon/control.h"

#include <string.h>

#include "daemon/loop.h"

static void on_connection(uv_stream_t *server, int err)
{
    if (err == 0)
        pstd_client_new(server->data);
}

enum pst_status pstd_control_open(struct pstd_daemon *d, const char *path,
                                  bool own_dir, struct pst_diag *diag)
{
    struct pstd_control *c = &d->control;
    enum pst_status status =
        pstd_socket_bind(path, own_dir, &c->listener, diag);
    int err;

    if (status != PST_OK)
        return status;
    err = uv_pipe_init(&d->loop, &c->pipe, 0);
    if (err == 0) {
        c->open = true;
        c->pipe.data = d;
        err = uv_pipe_open(&c->pipe, c->listener.fd);
    }
    if (err == 0) {
        c->listener.fd = -1; /* the pipe's now */
        err = uv_listen((uv_stream_t *)&c->pipe, 64, on_connection);
    }
    if (err == 0)
        return PST_OK;
    status = pst_diag_set(diag, PST_ERR_IO, "cannot listen at %s: %s", path,
                          uv_strerror(err));
    pstd_control_close(d);
    return status;
}

void pstd_control_close(struct pstd_daemon *d)
{
    struct pstd_control *c = &d->control;

    if (c->open)
        uv_close((uv_handle_t *)&c->pipe, NULL);
    c->open = false;
    for (struct pstd_client *at = c->clients; at != NULL; at = at->next)
        pstd_client_close(at);
    pstd_socket_unbind(&c->listener);
}

void pstd_control_event(struct pstd_daemon *d, const void *data, size_t size)
{
    for (struct pstd_client *at = d->control.clients; at != NULL; at = at->next)
        if (at->watching)
            pstd_client_send_packed(at, data, size);
}

bool pstd_control_watched(const struct pstd_daemon *d)
{
    for (const struct pstd_client *at = d->control.clients; at != NULL;
         at = at->next)
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

void pstd_control_tick(struct pstd_daemon *d, bool heartbeat)
{
    const uint64_t now = uv_now(&d->loop);

    for (struct pstd_client *at = d->control.clients; at != NULL;
         at = at->next) {
        if (at->closing)
            continue;
        if (at->half_since_ms > 0 &&
            now - at->half_since_ms > 1000ull * PSTD_HALF_FRAME_S)
            pstd_client_close(at);
        else if (heartbeat && at->watching)
            send_heartbeat(at);
    }
}
