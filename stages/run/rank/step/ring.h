// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_RING_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_RING_H
/*
 * Start and end of each action in the last steps of this rank. Recording them
 * takes two stores, since the executor reads the clock anyway. Exec thread
 * only; allocated in the rank's heap.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* Number of steps kept. */
#define PST_RING_STEPS 8

/* Seconds of this process's monotonic clock. */
struct pst_mark {
    double start, end;
};

struct pst_ring_step {
    uint64_t step;
    bool whole;          /* the step reached its end */
    struct pst_mark all; /* the step, to the end of its last action or update */
    struct pst_mark prepare, optim; /* list P, update; {0}: not run */
    struct pst_mark *marks;         /* per action */
};

struct pst_ring {
    struct pst_ring_step steps[PST_RING_STEPS];
    struct pst_ring_step *now; /* the running step */
    unsigned n_actions;
    uint64_t n_steps; /* number of steps started in this process */
};

enum pst_status pst_ring_init(struct pst_ring *ring, struct pst_arena *arena,
                              unsigned n_actions,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_ring_begin(struct pst_ring *ring, uint64_t step, double now);
void pst_ring_end(struct pst_ring *ring, double now);
/* Returns the record of that step, NULL if it was overwritten or the step did
 * not reach its end. */
const struct pst_ring_step *pst_ring_find(const struct pst_ring *ring,
                                          uint64_t step);
/* True if slot i of the ring holds a complete step that counts. The first two
 * steps of a run do not count if there are others: they are slow, since they
 * touch memory for the first time. */
bool pst_ring_counts(const struct pst_ring *ring, unsigned i);
/* Returns a step of median length among those that count; NULL if there is
 * none. */
const struct pst_ring_step *pst_ring_median(const struct pst_ring *ring);

#endif
