// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_SERVE_SERVING_H
#define PENSTOCK_DAEMON_LOOP_SERVE_SERVING_H
/* Requests to a served model: from clients to the intake, and answers back.
 * Loop thread. */
#include "daemon/intake.h"
#include "daemon/loop/call.h"

/* Handlers of requests (commands.c). */
enum pst_status pstd_serving_signature(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_serving_infer(struct pstd_call *call) PST_MUST_CHECK;

/* request.c: what was sent, checked against what the model takes. Returns
 * owned. */
enum pst_status pstd_serving_read(const struct pstd_signature *s,
                                  const Pst__Control__Infer *from,
                                  struct pstd_ask **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Sends all answers that there are; ctx is a struct pstd_daemon. */
void pstd_serving_answers(void *ctx);
/* The client goes; a hook of the control socket. */
void pstd_serving_gone(void *ctx, const struct pstd_client *client);
/* A rank was lost: who waits is told to ask again, and not to wait for the end
 * of this process. */
void pstd_serving_lost(struct pstd_daemon *d);
/* Event "serving". */
void pstd_serving_emit(struct pstd_daemon *d);

#endif
