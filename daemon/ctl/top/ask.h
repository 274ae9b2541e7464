// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TOP_ASK_H
#define PENSTOCK_DAEMON_CTL_TOP_ASK_H
/* Asks the ranks of a job on this host what they do. One thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/top/view.h"

struct pstctl_ask;

/* Borrows config. Returns owned. */
enum pst_status pstctl_ask_new(const struct pstd_config *config,
                               struct pstctl_ask **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* What is new since the last time; never waits long for anybody. A job that is
 * gone is looked for again. */
void pstctl_ask_all(struct pstctl_ask *ask, struct pstctl_top_view *view);
void pstctl_ask_free(struct pstctl_ask *ask);

#endif
