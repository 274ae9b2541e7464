// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TOP_ASK_H
#define PENSTOCK_DAEMON_CTL_TOP_ASK_H
/* Queries the ranks of a job on this host. One thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/top/view.h"

struct pstctl_ask;

/* Borrows config. Returns owned. */
enum pst_status pstctl_ask_new(const struct pstd_config *config,
                               struct pstctl_ask **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Fetches news since the last call; never waits long for a peer. Looks again
 * for a job that has gone. */
void pstctl_ask_all(struct pstctl_ask *ask, struct pstctl_top_view *view);
void pstctl_ask_free(struct pstctl_ask *ask);

#endif
