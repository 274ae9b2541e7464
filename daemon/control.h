// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CONTROL_H
#define PENSTOCK_DAEMON_CONTROL_H
/*
 * The control socket: control.c listens, client.c speaks with one peer.
 * Loop thread. A client's memory is freed in its close callback.
 */
#include "daemon/common/frame.h"
#include "daemon/common/socket.h"

#include <stdbool.h>
#include <uv.h>

#define PSTD_MAX_CLIENTS  64
#define PSTD_WRITE_MAX    (1u << 20) /* bytes that may wait for a watcher */
#define PSTD_HALF_FRAME_S 10

struct pstd_daemon;

struct pstd_client {
    uv_pipe_t pipe;
    struct pstd_daemon *daemon;
    struct pstd_client *next;
    struct pstd_frames in;
    unsigned uid;
    int pid;
    bool greeted, watching, closing;
    uint64_t half_since_ms; /* a frame is incomplete since then; 0: none */
    char chunk[16384];      /* bytes of one read */
};

struct pstd_control {
    uv_pipe_t pipe;
    bool open;
    struct pstd_listener listener;
    struct pstd_client *clients;
    unsigned n_clients;
};

/* Listens at path. */
enum pst_status pstd_control_open(struct pstd_daemon *d, const char *path,
                                  bool own_dir,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Closes all; answers that wait are sent if they can be at once. */
void pstd_control_close(struct pstd_daemon *d);
/* A packed event to every client that watches. */
void pstd_control_event(struct pstd_daemon *d, const void *data, size_t size);
/* Is there a client that watches? */
bool pstd_control_watched(const struct pstd_daemon *d);
/* Every second: slow frames, heartbeats. */
void pstd_control_tick(struct pstd_daemon *d, bool heartbeat);

/* Takes the pipe of an accepted connection: refuses it or greets. */
void pstd_client_new(struct pstd_daemon *d);
void pstd_client_close(struct pstd_client *client);
/* Sends; a client that lets too much pile up is closed. */
void pstd_client_send(struct pstd_client *client, const pstd_frame *frame);
void pstd_client_send_packed(struct pstd_client *client, const void *data,
                             size_t size);
/* Starts the stream of events with number `from`, 0: the next one. */
void pstd_client_watch(struct pstd_client *client, uint64_t from);

#endif
