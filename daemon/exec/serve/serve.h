// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
#define PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
/* Serves requests: runs forward steps for those waiting in the intake, until
 * asked to stop. Exec thread. */
#include "daemon/exec/collective.h"

/* COLLECTIVE. Sets w->stopping when it ends. If serving is impossible (plan,
 * options, checkpoint), it fails on all ranks: w->agreed. */
enum pst_status pstd_serve(struct pstd_executor *w,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
