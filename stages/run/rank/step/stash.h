// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_STASH_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_STASH_H
/*
 * Slots of the stash that wait outside of the arena (--stash): in other memory
 * of the host, or in a file without a name. A thread of its own copies them, in
 * the order that was planned (stages/layout/memory/spill.h): behind the actions
 * that made them, ahead of those that read them.
 *
 * What goes out is marked with step, stage, region and microbatch, and what
 * comes back is compared with that; with options.verify its bytes are too, and
 * a slot that has gone out is overwritten. A copy that fails (a full disk) is
 * a fault of the step: all of its later copies and kernels are left out, and
 * the step is not applied.
 *
 * Calls: the rank's own thread, or before there are others.
 */
#include "stages/layout/memory/spill.h"
#include "stages/run/exec.h"
#include "stages/run/rank/step/device.h"

#include <pthread.h>

struct pst_stash_mark;

struct pst_stash {
    const struct pst_layout *layout; /* NULL: nothing waits outside */
    struct pst_rank_device *device;
    bool verify;
    struct pst_stash_mark *marks; /* by place outside */
    unsigned char *ram;           /* NULL: there is a file */
    size_t size;
    int fd; /* of the file, -1: none */
    char *where;
    uint64_t step;
    unsigned brought; /* copies whose bytes the device has */
    struct pst_stash_totals totals;

    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, moved;
    bool runs, closes;
    unsigned issued, done; /* copies of the step */
    enum pst_status status;
    struct pst_diag diag; /* why it failed */
};

/* Opens what the layout needs, and starts the thread. Borrows all. */
enum pst_status pst_stash_open(struct pst_stash *s,
                               const struct pst_rank_role *role,
                               const struct pst_layout *layout,
                               struct pst_rank_device *device,
                               struct pst_arena *heap,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Gives up what is under way. Also of {0}. */
void pst_stash_close(struct pst_stash *s);

/* A step begins: no copy is under way. */
void pst_stash_begin(struct pst_stash *s, uint64_t step);
/* So many copies of the step may begin. */
void pst_stash_issue(struct pst_stash *s, unsigned copies);
/* Waits a little until so many have ended: PST_AGAIN: not yet, *ret_moved tells
 * whether others have; PST_OK also of copies that failed. */
enum pst_status pst_stash_await(struct pst_stash *s, unsigned copies,
                                bool *ret_moved) PST_MUST_CHECK;
/* Why a copy of this step failed; NULL: none did. */
const struct pst_diag *pst_stash_fault(struct pst_stash *s);

#endif
