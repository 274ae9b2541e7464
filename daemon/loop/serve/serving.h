// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_SERVE_SERVING_H
#define PENSTOCK_DAEMON_LOOP_SERVE_SERVING_H
/* Passes requests for outputs of a served model from clients to the intake, and
 * the answers back. Loop thread. */
#include "daemon/intake.h"
#include "daemon/loop/call.h"

/* Request handlers (commands.c). */
enum pst_status pstd_serving_signature(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_serving_infer(struct pstd_call *call) PST_MUST_CHECK;

/* request.c: reads a request, and checks it against the model's inputs. Returns
 * owned. */
enum pst_status pstd_serving_read(const struct pstd_signature *s,
                                  const Pst__Control__Infer *from,
                                  struct pstd_ask **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Sends all available answers; ctx is a struct pstd_daemon. */
void pstd_serving_send_answers(void *ctx);
/* Hook of the control socket: the client is about to be closed. */
void pstd_serving_drop_client(void *ctx, const struct pstd_client *client);
/* Call when a rank is lost: answers all waiting requests by an error that says
 * to ask again, instead of letting clients wait for the end of this process. */
void pstd_serving_drop_all(struct pstd_daemon *d);
/* Emits the event "serving". */
void pstd_serving_emit(struct pstd_daemon *d);

#endif
