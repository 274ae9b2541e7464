// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_CONN_H
#define PENSTOCK_DAEMON_CTL_JOB_CONN_H
/* A connection to a daemon's control socket. One thread. */
#include "daemon/common/config.h"
#include "daemon/common/control/frame.h"
#include "daemon/common/control/socket.h"

struct pstctl_conn {
    int fd;
    struct pstd_frames in;
    uint64_t next_id;
    char job[64];
    unsigned rank, ranks;
    char path[PSTD_SOCKET_PATH + 1]; /* path of the socket */
    uint64_t pid;                    /* pid of the daemon */
    char run_id[33];                 /* value of --one-run, or "" */
    uint64_t first_event;            /* number of the daemon's first event */
    char journal[256];               /* file with the job's events; "": none */
};

/* Identifies a run. Each process numbers its runs from 1, so runs of different
 * processes may have the same number. */
struct pstctl_run_name {
    uint64_t number; /* 0: not known */
    char id[33];     /* "": not known (older daemons do not send it) */
};

typedef Pst__Control__Request pstctl_request;
typedef Pst__Control__Reply pstctl_reply;
typedef Pst__Control__Event pstctl_event;

#define PSTCTL_HELLO_MS 10000 /* time limit of the daemon's Hello */

/* Open a connection in two steps, for callers that must not block. The first
 * connects and sends Hello; the second receives the daemon's Hello, or returns
 * PST_AGAIN after timeout_ms. */
enum pst_status pstctl_open_begin(const char *path, struct pstctl_conn *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_open_finish(struct pstctl_conn *conn, int timeout_ms,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Sets diag to PST_ERR_BUSY: the daemon has sent no Hello within
 * PSTCTL_HELLO_MS. */
enum pst_status pstctl_report_no_hello(struct pst_diag *diag) PST_MUST_CHECK;
/* Connects and exchanges Hello. */
enum pst_status pstctl_open(const char *path, struct pstctl_conn *ret,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* Finds the socket of rank 0: --socket, that of --job, or that of the only job.
 * The ranks may not have started yet. */
enum pst_status pstctl_find_socket(const struct pstd_config *config,
                                   struct pst_str *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Connects like pstctl_open; tries again for up to 1 s while the daemon has too
 * many clients. */
enum pst_status pstctl_open_retrying(const char *path, struct pstctl_conn *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Connects to the job that pstctl_find_socket finds. PST_ERR_NO_DAEMON: there
 * is no such job; PST_ERR_BUSY: it has no ranks at the moment. */
enum pst_status pstctl_connect(const struct pstd_config *config,
                               struct pstctl_conn *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Connects like pstctl_connect, but waits for the ranks of a job that is being
 * (re)started, and prints that it waits unless --quiet. *ret_lock: descriptor
 * from pstctl_owner_open, for the caller to close, even if the job has ended
 * meanwhile (PST_ERR_NO_DAEMON). */
enum pst_status pstctl_connect_waiting(const struct pstd_config *config,
                                       struct pstctl_conn *ret, int *ret_lock,
                                       struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_close(struct pstctl_conn *conn);

/* Makes the key of a request: 32 random hexadecimal digits. */
void pstctl_make_key(char key[33]);

/* Returns the status of a reply, and stores it with the error's row and text in
 * diag. */
enum pst_status pstctl_reply_status(const pstctl_reply *reply,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Reads the next frame; PST_AGAIN after timeout_ms (-1: waits without limit);
 * PST_ERR_NO_DAEMON if the daemon has ended. Returns owned. */
enum pst_status pstctl_read(struct pstctl_conn *conn, int timeout_ms,
                            pstd_frame **ret,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* Sends a request with a new id, and a key if it changes anything (body from
 * TRAIN on). */
enum pst_status pstctl_send(struct pstctl_conn *conn, pstctl_request *request,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* Sends a request, waits for the reply (owned, frame->reply) and returns its
 * status. Events received meanwhile are dropped, so call it before watching. */
enum pst_status pstctl_call(struct pstctl_conn *conn, pstctl_request *request,
                            pstd_frame **ret,
                            struct pst_diag *diag) PST_MUST_CHECK;

/* Sends a request without fields like pstctl_call; ret may be NULL. */
enum pst_status pstctl_send_simple(struct pstctl_conn *conn,
                                   Pst__Control__Request__BodyCase body,
                                   pstd_frame **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Sends a request without fields; a reply of another kind than `reply` is an
 * error. */
enum pst_status pstctl_query(struct pstctl_conn *conn,
                             Pst__Control__Request__BodyCase request,
                             Pst__Control__Reply__BodyCase reply,
                             pstd_frame **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_refuse_answer(struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_watch_from(struct pstctl_conn *conn, uint64_t from,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_stop_job(struct pstctl_conn *conn, bool now,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Starts a run with all given options of PSTD_OPT_TRAIN. *ret_seq: number of
 * the event from which to watch it. */
enum pst_status pstctl_start_train(struct pstctl_conn *conn,
                                   const struct pstd_config *config,
                                   uint64_t *ret_seq,
                                   struct pstctl_run_name *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Return a field of an event; NULL, NaN or 0 if there is none of that key and
 * type. */
const char *pstctl_text(const pstctl_event *event, const char *key);
double pstctl_number(const pstctl_event *event, const char *key);
int64_t pstctl_integer(const pstctl_event *event, const char *key);

#endif
