// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_CURVES_H
#define PENSTOCK_DAEMON_CTL_REPORT_CURVES_H
/* Curves with every step, from the history beside the logs. One thread. */
#include "daemon/ctl/report/story.h"

/* Replaces the points that logs have of some steps by those of all steps. Logs
 * keep the steps that the history lacks. Leaves the story as it is if there is
 * no readable history, or if it is not that of the newest run. */
enum pst_status pstctl_curves_read(const char *dir, struct pstctl_story *story,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
