// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_CURVES_H
#define PENSTOCK_DAEMON_CTL_REPORT_CURVES_H
/* Reads curves that have every step from the history beside the logs. One
 * thread. */
#include "daemon/ctl/report/story.h"

/* Replaces the points from the logs, which have only some steps, by points for
 * all steps in the history. Keeps points of steps that the history lacks.
 * Leaves the story unchanged if there is no readable history, or if the history
 * belongs to another run than the newest one. */
enum pst_status pstctl_curves_read(const char *dir, struct pstctl_story *story,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
