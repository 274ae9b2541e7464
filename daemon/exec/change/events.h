// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_EVENTS_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_EVENTS_H
/* Log events about changes of a run's model. Exec thread. */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"

/* Starts a note with the fields run and step, and a field `key` with the value
 * `name`. */
void pstd_change_note_init(const struct pstd_session *s, enum pstd_event event,
                           const char *key, const char *name,
                           struct pstd_note *ret);
/* Starts the note of a successful change; n: number of calls, parameters or
 * tensors that were changed. The caller may add fields. */
void pstd_change_note_done(const struct pstd_session *s,
                           const struct pstd_change_order *order, unsigned n,
                           struct pstd_note *ret);
void pstd_change_emit_refused(const struct pstd_session *s,
                              const struct pstd_change_order *order,
                              const struct pst_diag *diag);

#endif
