// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
/*
 * What a run looks at between its steps, so that nothing goes wrong unseen.
 * Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE, after each step. By --compare-replicas: copies that differ end
 * the run (PST_ERR_INTERNAL). */
enum pst_status pstd_replicas_compare(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
