// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_RUN_H
#define PENSTOCK_DAEMON_CTL_RUN_RUN_H
/* Runs jobs that a client starts: `penstock run`, `penstock serve`, `penstock
 * up`. One thread. */
#include "daemon/common/config.h"

/* Starts the ranks, watches them until they end, and restarts them as the
 * options require; in this process, or with --detach in a separate one. */
enum pst_status pstctl_run_job(const struct pstd_config *config,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* up.c: runs a job that does not end by itself. kind: the job's option of
 * penstockd, "serve" or "stay". Its ranks are restarted up to ten times in a
 * row, unless --max-restarts is given. */
enum pst_status pstctl_run_staying(const struct pstd_config *config,
                                   const char *kind,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
