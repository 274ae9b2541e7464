// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_RUN_H
#define PENSTOCK_DAEMON_EXEC_RUN_H
/* Executes one run, from its options to its result. Exec thread. */
#include "daemon/exec/collective.h"

/* COLLECTIVE. Executes an order TRAIN or TRAIN_AGAIN. Also returns PST_OK if
 * the run failed but the daemon can continue: the failure is in the result. */
enum pst_status pstd_run(struct pstd_executor *w,
                         const struct pstd_order *order,
                         struct pst_diag *diag) PST_MUST_CHECK;

#endif
