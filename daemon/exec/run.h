// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_RUN_H
#define PENSTOCK_DAEMON_EXEC_RUN_H
/* One run from its options to its result. Exec thread. */
#include "daemon/exec/collective.h"

/* COLLECTIVE. PST_OK also if the run failed in a way that leaves the daemon
 * sound: the result says so.
 */
enum pst_status pstd_run(struct pstd_executor *w,
                         const struct pstd_order *order,
                         struct pst_diag *diag) PST_MUST_CHECK;

#endif
