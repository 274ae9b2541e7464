// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_LAST_STEP_H
#define PENSTOCK_DAEMON_CTL_REPORT_LAST_STEP_H
/* Reads a step from the flight records beside the logs. One thread. */
#include "daemon/ctl/report/story.h"

/* Reads the newest step that every rank has recorded completely into
 * story->timeline; leaves it empty if there is none, or if files are
 * missing. */
enum pst_status pstctl_steps_read(const char *dir, struct pstctl_story *story,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
