// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PLAN_EVALUATION_H
#define PENSTOCK_DAEMON_CTL_PLAN_EVALUATION_H
/* Predicts the memory of a run's evaluations. One thread. */
#include "daemon/common/config.h"
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

/* Computes the memory that ranks need for --eval-data in addition to that of a
 * training by `sched` with `options`. ret: one entry per rank of a replica. */
enum pst_status pstctl_evaluation_memory(const struct pstd_config *config,
                                         const struct pst_batch *batch,
                                         const struct pst_schedule *sched,
                                         const struct pst_exec_options *options,
                                         struct pst_memory *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;

#endif
