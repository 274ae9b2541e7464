// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TOP_QUERY_H
#define PENSTOCK_DAEMON_CTL_TOP_QUERY_H
/* Queries those ranks of a job that are on this host. One thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/top/view.h"

struct pstctl_ask;

/* Creates the state of pstctl_ask_all (*ret is owned); borrows config. */
enum pst_status pstctl_ask_new(const struct pstd_config *config,
                               struct pstctl_ask **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Updates the view from the status of the ranks and from events since the last
 * call; waits at most 0.3 s for each reply. If the job has ended, looks for it
 * again. */
void pstctl_ask_all(struct pstctl_ask *ask, struct pstctl_top_view *view);
void pstctl_ask_free(struct pstctl_ask *ask);

#endif
