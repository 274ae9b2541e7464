// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_RUN_H
#define PENSTOCK_DAEMON_CTL_RUN_RUN_H
/* Jobs that a client starts: `penstock run` and `penstock serve`. One thread.
 */
#include "daemon/common/config.h"

/* Starts the ranks, watches them to their end and starts them again as the
 * options say, here or (--detach) in a process of its own. */
enum pst_status pstctl_run_job(const struct pstd_config *config,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* up.c: a job that stays: kind is the option of penstockd that says how,
 * "serve" or "stay". Its ranks are started again ten times in a row, if
 * --max-restarts says nothing else. */
enum pst_status pstctl_run_staying(const struct pstd_config *config,
                                   const char *kind,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
