// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
#define PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
/* Serves requests: runs forward steps for those waiting in the intake, until
 * asked to stop. Exec thread. */
#include "daemon/exec/collective.h"

/* COLLECTIVE. Serves until a stop; sets w->stopping. If serving cannot begin
 * because of plan, options or checkpoint, fails with the same error on all
 * ranks (w->agreed). */
enum pst_status pstd_serve(struct pstd_executor *w,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
