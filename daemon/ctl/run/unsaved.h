// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
#define PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
/*
 * State of a job, derived from its events: its newest step, and state that is
 * in no checkpoint and would be lost with the job, or was lost at the end of
 * its run: a pause, and changes of the model. One thread.
 */
#include "daemon/ctl/job/conn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum number of changes whose steps are recorded; later changes count as
 * made after the step of the last recorded one. */
#define PSTCTL_UNSAVED 16

struct pstctl_unsaved {
    bool training; /* a run was accepted or has begun, and has not ended */
    bool paused;
    uint64_t step; /* newest finished step that an event has reported */
    bool started;  /* ranks were started at least once */
    /* The ranks were restarted, and the run has not begun again since. */
    bool again;
    char changes[256]; /* "froze blocks.*, set scale", truncated */
    /* For each change, the step after which it was made, and the index of its
     * text in `changes`. */
    struct {
        uint64_t step;
        size_t begin;
    } at[PSTCTL_UNSAVED];
    unsigned n;
};

void pstctl_unsaved_update(struct pstctl_unsaved *u, const pstctl_event *event);
/* Returns the changes that the checkpoint of `step` lacks. That checkpoint may
 * have been saved by ranks that died before they reported it. */
const char *pstctl_unsaved_lost(const struct pstctl_unsaved *u, uint64_t step);

#endif
