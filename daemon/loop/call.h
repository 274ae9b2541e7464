// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_CALL_H
#define PENSTOCK_DAEMON_LOOP_CALL_H
/* A request being answered. Loop thread. */
#include "daemon/loop/daemon.h"

struct pstd_call {
    struct pstd_daemon *d;
    struct pstd_client *client; /* NULL: the reply is appended to `record` */
    struct pst_str *record;
    const Pst__Control__Request *request;
    Pst__Control__Reply reply;
    struct pst_diag diag;
};

/* Computes the digest of the request without its id: requests that ask for the
 * same have the same one. */
enum pst_status pstd_call_digest(struct pstd_call *call,
                                 char ret[33]) PST_MUST_CHECK;
/* Sends the reply. */
void pstd_call_reply(struct pstd_call *call);
/* Replies with `outcome`. run: number of the run; seq: number of the event from
 * which the client may watch. */
void pstd_call_accept(struct pstd_call *call, const struct pst_diag *outcome,
                      uint64_t seq, uint64_t run, const char *run_id);

#endif
