// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_CONN_H
#define PENSTOCK_DAEMON_CTL_JOB_CONN_H
/* A connection to a daemon's control socket. One thread. */
#include "daemon/common/config.h"
#include "daemon/common/frame.h"
#include "daemon/common/socket.h"

struct pstctl_conn {
    int fd;
    struct pstd_frames in;
    uint64_t next_id;
    char job[64];
    unsigned rank, ranks;
    char path[PSTD_SOCKET_PATH + 1]; /* of the socket */
    uint64_t pid;                    /* of the daemon */
    char run_id[33];                 /* "" or what --one-run gave it */
    uint64_t first_event;            /* of this start of the daemon */
    char journal[256];               /* of all its starts; "": none */
};

typedef Pst__Control__Request pstctl_request;
typedef Pst__Control__Reply pstctl_reply;
typedef Pst__Control__Event pstctl_event;

#define PSTCTL_HELLO_MS 10000 /* for the daemon to say hello */

/* In two steps, for who must not wait: connects and says hello; takes the
 * daemon's hello, or PST_AGAIN after timeout_ms. */
enum pst_status pstctl_open_begin(const char *path, struct pstctl_conn *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_open_finish(struct pstctl_conn *conn, int timeout_ms,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_BUSY: it said none in PSTCTL_HELLO_MS. */
enum pst_status pstctl_no_hello(struct pst_diag *diag) PST_MUST_CHECK;
/* Says hello both ways. */
enum pst_status pstctl_open(const char *path, struct pstctl_conn *ret,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* The socket of rank 0 at --socket, --job's, or of the only job there is, whose
 * ranks may be started only now. */
enum pst_status pstctl_where(const struct pstd_config *config,
                             struct pst_str *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* As pstctl_open, but in a crowd waits for its turn. */
enum pst_status pstctl_open_patiently(const char *path, struct pstctl_conn *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* To that job. PST_ERR_NO_DAEMON: there is none; PST_ERR_BUSY: it has no ranks
 * at the moment. */
enum pst_status pstctl_connect(const struct pstd_config *config,
                               struct pstctl_conn *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The same, but waits for the ranks of a job that is being started (again),
 * and says so, unless --quiet. *ret_lock: of who starts them, as by
 * pstctl_owner_open, also if it has ended meanwhile (PST_ERR_NO_DAEMON); the
 * caller closes it. */
enum pst_status pstctl_await(const struct pstd_config *config,
                             struct pstctl_conn *ret, int *ret_lock,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_close(struct pstctl_conn *conn);

/* 32 random hexadecimal digits. */
void pstctl_key(char key[33]);

/* Status, row and text of a reply as a diagnosis; numbers are the daemon's. */
enum pst_status pstctl_reply_status(const pstctl_reply *reply,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Next frame; PST_AGAIN after timeout_ms (-1: never); PST_ERR_NO_DAEMON if
 * the daemon went away. Returns owned. */
enum pst_status pstctl_read(struct pstctl_conn *conn, int timeout_ms,
                            pstd_frame **ret,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* Fills in id, and a key for a request that changes something (body from
 * TRAIN on), and sends. */
enum pst_status pstctl_send(struct pstctl_conn *conn, pstctl_request *request,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* Sends, waits for the reply (owned, frame->reply) and turns its status into
 * ours. Events in between are dropped: watch comes after. */
enum pst_status pstctl_call(struct pstctl_conn *conn, pstctl_request *request,
                            pstd_frame **ret,
                            struct pst_diag *diag) PST_MUST_CHECK;

/* A request that has no fields of its own. *ret may be NULL. */
enum pst_status pstctl_get(struct pstctl_conn *conn,
                           Pst__Control__Request__BodyCase body,
                           pstd_frame **ret,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* Anything but that reply is a fault. */
enum pst_status pstctl_ask(struct pstctl_conn *conn,
                           Pst__Control__Request__BodyCase request,
                           Pst__Control__Reply__BodyCase reply,
                           pstd_frame **ret,
                           struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_not_expected(struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_watch_from(struct pstctl_conn *conn, uint64_t from,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_stop_job(struct pstctl_conn *conn, bool now,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* The answer to a request of that body which a job for one run has left in the
 * file `path`; PST_ERR_NOT_FOUND if there is none. Returns owned. */
enum pst_status pstctl_recorded(const char *path,
                                Pst__Control__Reply__BodyCase body,
                                pstd_frame **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* All options of PSTD_OPT_TRAIN that were given; *ret_seq: watch from there
 * on; *ret_run: its number. */
enum pst_status pstctl_start_train(struct pstctl_conn *conn,
                                   const struct pstd_config *config,
                                   uint64_t *ret_seq, uint64_t *ret_run,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Field of an event; NULL, NaN, 0 if it has none. */
const char *pstctl_text(const pstctl_event *event, const char *key);
double pstctl_number(const pstctl_event *event, const char *key);
int64_t pstctl_integer(const pstctl_event *event, const char *key);

#endif
