// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_STASH_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_STASH_H
/*
 * Evicts slots of the stash from the arena and reloads them (--stash): to other
 * memory of the host, or to an unnamed file. A separate thread copies them in
 * the planned order (stages/layout/memory/spill.h): after the actions that
 * write them, before those that read them.
 *
 * Each evicted slot is marked with step, stage, region and microbatch, which
 * are checked on reload. With options.verify a checksum of its bytes is
 * checked, too, and the slot is overwritten after the eviction. A copy that
 * fails (a full disk) is a fault of the step: all later copies and kernels of
 * the step are skipped, and it is not applied.
 *
 * Calls: the rank's own thread, or before other threads exist.
 */
#include "stages/layout/memory/spill.h"
#include "stages/run/exec.h"
#include "stages/run/rank/step/device.h"

#include <pthread.h>

struct pst_stash_mark;

struct pst_stash {
    const struct pst_layout *layout; /* NULL: nothing is evicted */
    struct pst_rank_device *device;
    bool verify;
    struct pst_stash_mark *marks; /* one per location outside of the arena */
    unsigned char *ram;           /* NULL: a file is used */
    size_t size;                  /* bytes of RAM or file */
    int fd;                       /* descriptor of the file; -1: none */
    char *location;               /* name of the location for messages */
    uint64_t step;
    unsigned n_pushed; /* copies that have ended, also on the device */
    struct pst_stash_totals totals;

    pthread_t thread;
    pthread_mutex_t lock; /* protects everything below */
    pthread_cond_t work, copied;
    bool runs, closing;
    unsigned issued, done;  /* copies of the step that may begin, have ended */
    enum pst_status status; /* the first failure of the step's copies */
    struct pst_diag diag;   /* why status is a failure */
};

/* Opens what the layout needs, and starts the thread. Borrows all arguments. */
enum pst_status pst_stash_open(struct pst_stash *s,
                               const struct pst_rank_role *role,
                               const struct pst_layout *layout,
                               struct pst_rank_device *device,
                               struct pst_arena *heap,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Cancels copies in progress. Accepts {0}. */
void pst_stash_close(struct pst_stash *s);
/* Between steps: frees the memory or disk space of the stash, which later steps
 * take again. */
void pst_stash_empty(struct pst_stash *s);

/* Begins a step; no copy may be in progress. */
void pst_stash_begin(struct pst_stash *s, uint64_t step);
/* Allows the first `copies` copies of the step to begin. */
void pst_stash_issue(struct pst_stash *s, unsigned copies);
/* Waits for a short time until the first `copies` copies of the step have
 * ended. PST_AGAIN: they have not; PST_OK also if some failed. *ret_moved: true
 * if some copy ended meanwhile. */
enum pst_status pst_stash_await(struct pst_stash *s, unsigned copies,
                                bool *ret_moved) PST_MUST_CHECK;
/* Returns why a copy of this step failed; NULL: none did. */
const struct pst_diag *pst_stash_fault(struct pst_stash *s);

#endif
