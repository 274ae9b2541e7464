// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_CONTROL_H
#define PENSTOCK_DAEMON_LOOP_CONTROL_H
/*
 * The control socket: control.c listens and limits the clients, client.c talks
 * to one of them. Loop thread. A client's memory is freed in its close
 * callback.
 *
 * No client can make this process use more and more memory. Nothing is read
 * from a client while its queue is full. Events are sent from the daemon's
 * history as the socket drains; a client that is too slow gets the number of
 * events that it has missed instead. Clients cannot keep others out, either:
 * when all slots are taken, the least active client is dropped.
 */
#include "daemon/common/control/frame.h"
#include "daemon/common/control/socket.h"
#include "daemon/loop/record/history.h"

#include <stdbool.h>
#include <uv.h>

/* Maximum number of clients; lower if the process may open few files. */
#define PSTD_MAX_CLIENTS 2048
/* Limits in bytes, except PSTD_MAX_ASKED. */
/* A client whose queue is larger gets no more replies. */
#define PSTD_QUEUE      (64u << 10)
#define PSTD_ALL_QUEUES (24u << 20) /* queues of all clients */
#define PSTD_ALL_FRAMES (8u << 20)  /* incomplete frames of all clients */
/* Incomplete frames of all clients, if a model is served. */
#define PSTD_ASKED_FRAMES (128u << 20)
/* Queues of all clients, if a model is served. */
#define PSTD_ASKED_QUEUES (256u << 20)
/* requests for outputs of a client that are not yet answered */
#define PSTD_MAX_ASKED 16

struct pstd_control;
struct pstd_client;

/* Callbacks for requests and events of clients. */
struct pstd_control_hooks {
    void (*request)(void *ctx, struct pstd_client *client,
                    const Pst__Control__Request *request);
    void (*publish)(void *ctx, const struct pstd_note *note);
    /* True while steps run, which must not be slowed down: clients then have a
     * limited rate of requests and connections. NULL: always true. */
    bool (*busy)(void *ctx);
    /* Called before a client is closed; may be NULL. */
    void (*gone)(void *ctx, const struct pstd_client *client);
    void *ctx;
};

/* Identity of the daemon, for Hello. Texts are borrowed. */
struct pstd_identity {
    const char *job, *run_id; /* run_id: value of --one-run, or "" */
    unsigned rank, ranks;
    uint64_t first_event; /* number of the first event of this process */
    const char *journal;  /* path of the journal; "": none */
};

struct pstd_client {
    uv_pipe_t pipe;
    struct pstd_control *control;
    struct pstd_client *next;
    struct pstd_frames in;
    uint64_t serial; /* unique within this process */
    /* requests for outputs that are not yet answered (loop/serve/) */
    unsigned asked;
    unsigned uid;
    int pid;
    bool greeted, watching, closing;
    bool paused;        /* nothing is read from the client for now */
    uint64_t event;     /* number of the event to send next */
    double credit;      /* number of requests that it may make now */
    uint64_t credit_ms; /* time at which credit was computed */
    uint64_t active_ms; /* time of the last frame received, or bytes sent */
    /* Time since which a frame has been incomplete; 0: no frame is. */
    uint64_t half_since_ms;
    /* bytes queued when the client was last checked (pstd_control_tick) */
    size_t queued;
};

struct pstd_control {
    uv_loop_t *loop;
    struct pstd_history *history;
    struct pstd_control_hooks hooks;
    struct pstd_identity identity;
    double client_timeout; /* value of --client-timeout in seconds */
    size_t max_request;    /* maximum bytes of a frame */
    size_t max_held;       /* maximum bytes of all incomplete frames */
    size_t max_queued;     /* maximum bytes of all queued answers */
    uint64_t serials;      /* serial numbers used so far */
    uv_pipe_t pipe;
    bool open;
    struct pstd_listener listener;
    struct pstd_client *clients;
    unsigned n_clients, max_clients;
    uv_timer_t again; /* runs while a connection or client waits */
    bool waiting;     /* a connection has not been accepted yet */
    /* Connections that may still be accepted until the timer fires. */
    unsigned accepts;
    size_t queued;    /* queued bytes of all clients */
    size_t held;      /* memory of incomplete frames */
    uint64_t dropped; /* clients dropped so far */
    /* Time of the last report of drops; number of drops reported so far. */
    uint64_t reported_ms, reported;
    char chunk[16384]; /* buffer of one read */
};

/* Initialises without a socket; borrows loop and history until close.
 * client_timeout: seconds. */
void pstd_control_init(struct pstd_control *c, uv_loop_t *loop,
                       struct pstd_history *history,
                       struct pstd_control_hooks hooks, double client_timeout);
/* Listens at path. */
enum pst_status pstd_control_open(struct pstd_control *c, const char *path,
                                  bool own_dir, struct pstd_identity identity,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Closes everything. Queued answers are sent only if the socket accepts them at
 * once. */
void pstd_control_close(struct pstd_control *c);
/* Sends new events of the history to every watching client. */
void pstd_control_send_events(struct pstd_control *c);
/* True if at least one client watches. */
bool pstd_control_watched(const struct pstd_control *c);
/* Call every second: drops clients that have timed out, sends heartbeats. */
void pstd_control_tick(struct pstd_control *c, bool heartbeat);
/* Starts the timer that retries waiting connections and clients. */
void pstd_control_retry_later(struct pstd_control *c);
/* Closes the client, logs the reason, and sends it if the client reads. */
void pstd_control_drop(struct pstd_client *client, const char *reason);
/* True while steps run, as reported by the hook `busy`. */
bool pstd_control_busy(const struct pstd_control *c);
/* Drops the client whose queue has not drained for the longest time. */
void pstd_control_drop_slowest(struct pstd_control *c);

/* Accepts a connection: greets or refuses it. After PST_ERR_NOMEM the
 * connection is still pending. */
enum pst_status pstd_client_new(struct pstd_control *c) PST_MUST_CHECK;
void pstd_client_close(struct pstd_client *client);
void pstd_client_send(struct pstd_client *client, const pstd_frame *frame);
/* Sends the reason why the connection ends, as a reply that belongs to no
 * request. */
void pstd_client_send_fault(struct pstd_client *client,
                            const struct pst_diag *diag);
/* Starts the event stream at number `from`, 0: the next event. */
void pstd_client_watch(struct pstd_client *client, uint64_t from);
/* Sends as many events as the client reads; the others stay in the history. */
void pstd_client_send_events(struct pstd_client *client);
/* Sends events as the client reads, and answers its waiting requests. */
void pstd_client_continue(struct pstd_client *client);

#endif
