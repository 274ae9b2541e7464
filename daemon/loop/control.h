// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_CONTROL_H
#define PENSTOCK_DAEMON_LOOP_CONTROL_H
/*
 * The control socket: control.c listens and keeps order among the peers,
 * client.c speaks with one of them. Loop thread. A client's memory is freed in
 * its close callback.
 *
 * No peer can make this process grow: nothing is read from one for which much
 * waits to be sent; events are sent from the daemon's history as the socket
 * drains, and who is too slow for it is told how many are gone. Nor can peers
 * keep others out: the one that is least in use goes first.
 */
#include "daemon/common/frame.h"
#include "daemon/common/socket.h"
#include "daemon/loop/record/history.h"

#include <stdbool.h>
#include <uv.h>

#define PSTD_MAX_CLIENTS  2048         /* less if few files may be open */
#define PSTD_QUEUE        (64u << 10)  /* bytes that wait: no more is made */
#define PSTD_ALL_QUEUES   (24u << 20)  /* of all clients together */
#define PSTD_ALL_FRAMES   (8u << 20)   /* of frames that are not complete */
#define PSTD_ASKED_FRAMES (128u << 20) /* the same where models are served */
#define PSTD_ASKED_QUEUES (256u << 20) /* and of answers there */
#define PSTD_MAX_ASKED    16 /* requests of a client that may wait at once */

struct pstd_control;
struct pstd_client;

/* What becomes of what clients ask, and of what happens to them. */
struct pstd_control_hooks {
    void (*request)(void *ctx, struct pstd_client *client,
                    const Pst__Control__Request *request);
    void (*publish)(void *ctx, const struct pstd_note *note);
    /* True while steps are made, which must not become slower: then peers have
     * only so many requests and connections a second. NULL: always. */
    bool (*busy)(void *ctx);
    /* A client is about to be closed. NULL: nobody wants to know. */
    void (*gone)(void *ctx, const struct pstd_client *client);
    void *ctx;
};

/* Who speaks, for Hello. Texts are borrowed. */
struct pstd_identity {
    const char *job, *run_id; /* run_id: "" of a job that stays */
    unsigned rank, ranks;
    uint64_t first_event; /* the first of this process */
    const char *journal;  /* "": none */
};

struct pstd_client {
    uv_pipe_t pipe;
    struct pstd_control *control;
    struct pstd_client *next;
    struct pstd_frames in;
    uint64_t serial; /* never used again in this process */
    unsigned asked;  /* requests whose answer it waits for (loop/serve/) */
    unsigned uid;
    int pid;
    bool greeted, watching, closing;
    bool paused;            /* nothing is read from it */
    uint64_t event;         /* to be sent next */
    double credit;          /* requests that it may make at once */
    uint64_t credit_ms;     /* when that was so */
    uint64_t active_ms;     /* last frame from it, or bytes that it took */
    uint64_t half_since_ms; /* a frame is incomplete since then; 0: none */
    size_t queued;          /* bytes that waited at the last tick */
};

struct pstd_control {
    uv_loop_t *loop;
    struct pstd_history *history;
    struct pstd_control_hooks hooks;
    struct pstd_identity identity;
    double client_timeout; /* seconds */
    size_t max_request;    /* bytes of a frame */
    size_t max_held;       /* of all that are not complete */
    size_t max_queued;     /* of all answers that wait to be sent */
    uint64_t serials;      /* given so far */
    uv_pipe_t pipe;
    bool open;
    struct pstd_listener listener;
    struct pstd_client *clients;
    unsigned n_clients, max_clients;
    uv_timer_t again; /* while something waits for its turn */
    bool waiting;     /* a connection that is not accepted yet */
    unsigned accepts; /* that may still be made before the timer's next turn */
    size_t queued;    /* bytes that wait to be sent, all clients */
    size_t held;      /* memory of frames that are not complete */
    uint64_t dropped; /* clients, so far */
    uint64_t told_ms, told; /* when drops were logged, how many */
    char chunk[16384];      /* bytes of one read */
};

/* Borrows loop and history. */
void pstd_control_init(struct pstd_control *c, uv_loop_t *loop,
                       struct pstd_history *history,
                       struct pstd_control_hooks hooks, double client_timeout);
/* Listens at path. */
enum pst_status pstd_control_open(struct pstd_control *c, const char *path,
                                  bool own_dir, struct pstd_identity identity,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Closes all; answers that wait are sent if they can be at once. */
void pstd_control_close(struct pstd_control *c);
/* Something new is in the history: to every client that watches. */
void pstd_control_event(struct pstd_control *c);
/* True if a client watches. */
bool pstd_control_watched(const struct pstd_control *c);
/* Every second: who has used up his time, heartbeats. */
void pstd_control_tick(struct pstd_control *c, bool heartbeat);
/* Looks again in a moment at connections and clients that wait. */
void pstd_control_again(struct pstd_control *c);
/* Closes it, tells it why if it reads, and logs that. */
void pstd_control_drop(struct pstd_client *client, const char *reason);
/* See the hooks. */
bool pstd_control_busy(const struct pstd_control *c);
/* Drops the client whose queue has stood for the longest time. */
void pstd_control_relieve(struct pstd_control *c);

/* Takes the pipe of an accepted connection: refuses it or greets. PST_ERR_NOMEM
 * leaves the connection where it is. */
enum pst_status pstd_client_new(struct pstd_control *c) PST_MUST_CHECK;
void pstd_client_close(struct pstd_client *client);
void pstd_client_send(struct pstd_client *client, const pstd_frame *frame);
/* A reply to no request: why the connection ends. */
void pstd_client_send_fault(struct pstd_client *client,
                            const struct pst_diag *diag);
/* Starts the stream of events with number `from`, 0: the next one. */
void pstd_client_watch(struct pstd_client *client, uint64_t from);
/* As many events as the peer takes; the others wait in the history. */
void pstd_client_send_events(struct pstd_client *client);
/* The same, and requests that wait are answered. */
void pstd_client_go_on(struct pstd_client *client);

#endif
