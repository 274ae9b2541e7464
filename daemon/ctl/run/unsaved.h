// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
#define PENSTOCK_DAEMON_CTL_RUN_UNSAVED_H
/*
 * State of a job, derived from its events: its newest step, and what besides
 * steps it would lose if it died, or has lost when its run ended, which is a
 * pause, and changes of the model that no checkpoint contains. One thread.
 */
#include "daemon/ctl/job/conn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes with a step of their own; all later ones have that of the last. */
#define PSTCTL_UNSAVED 16

struct pstctl_unsaved {
    bool training; /* a run was accepted or has begun, and has not ended */
    bool paused;
    uint64_t step; /* newest finished step that an event has reported */
    bool started;  /* ranks were started at least once */
    /* The ranks were restarted, and the run has not begun again since. */
    bool again;
    char changes[256]; /* "froze blocks.*, set scale", truncated */
    /* Each change is made after a step; its text begins at `begin` in
     * `changes`. */
    struct {
        uint64_t step;
        size_t begin;
    } at[PSTCTL_UNSAVED];
    unsigned n;
};

void pstctl_unsaved_update(struct pstctl_unsaved *u, const pstctl_event *event);
/* Returns the changes that a checkpoint of that step lacks. It may have been
 * saved by ranks that died before they reported it. */
const char *pstctl_unsaved_lost(const struct pstctl_unsaved *u, uint64_t step);

#endif
