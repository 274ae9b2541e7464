// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_CALL_H
#define PENSTOCK_DAEMON_LOOP_CALL_H
/* A request on its way to its reply. Loop thread. */
#include "daemon/loop/daemon.h"

struct pstd_call {
    struct pstd_daemon *d;
    struct pstd_client *client; /* NULL: the reply goes to record */
    struct pst_str *record;
    const Pst__Control__Request *request;
    Pst__Control__Reply reply;
    struct pst_diag diag;
};

/* Sends the reply as it is. */
void pstd_call_reply(struct pstd_call *call);
/* A reply that has no more than this; seq: the newest event. */
void pstd_call_accept(struct pstd_call *call, const struct pst_diag *outcome,
                      uint64_t seq, uint64_t run);

#endif
