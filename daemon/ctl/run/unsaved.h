// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
#define PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
/*
 * State, other than steps, that a job would lose if it died, derived from its
 * events: a pause, and changes of the model that no checkpoint contains. One
 * thread.
 */
#include "daemon/ctl/job/conn.h"

#include <stdbool.h>

struct pstctl_unsaved {
    bool paused;
    bool started; /* ranks were started at least once */
    /* The ranks were restarted, and the run has not begun again since. */
    bool again;
    char changes[256]; /* "froze blocks.*, set scale", truncated */
};

void pstctl_unsaved_update(struct pstctl_unsaved *u, const pstctl_event *event);

#endif
