// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
#define PENSTOCK_DAEMON_EXEC_SERVE_SERVE_H
/* A job that answers requests: forward steps of those that wait in the intake,
 * until it is told to stop. Exec thread. */
#include "daemon/exec/collective.h"

/* COLLECTIVE. w->stopping is set behind it. What cannot be served at all (plan,
 * options, checkpoint) fails on all ranks: w->agreed. */
enum pst_status pstd_serve(struct pstd_executor *w,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
