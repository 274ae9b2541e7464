// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_EVENTS_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_EVENTS_H
/* What the log has of changes to a run's model. Exec thread. */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"

/* Seconds since some time. */
double pstd_change_clock(void);
/* Run, step, and the name under that key. */
void pstd_change_note(const struct pstd_session *s, enum pstd_event event,
                      const char *key, const char *name, struct pstd_note *ret);
/* n: calls, parameters or tensors that were changed. The note is for who has
 * more to tell. */
void pstd_change_done(const struct pstd_session *s,
                      const struct pstd_change_order *order, unsigned n,
                      struct pstd_note *ret);
void pstd_change_refused(const struct pstd_session *s,
                         const struct pstd_change_order *order,
                         const struct pst_diag *diag);

#endif
