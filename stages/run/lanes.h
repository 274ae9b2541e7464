// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_LANES_H
#define PENSTOCK_STAGES_RUN_LANES_H
/*
 * Runs the ranks of one process concurrently, each in a lane: a thread and a
 * kernel pool. The first rank runs on the caller's thread, which also watches
 * the others. In a step the ranks share only the transport, the weights of
 * microbatches (read only) and the data source, which is locked.
 *
 * Exec thread, except where noted.
 */
#include "stages/run/exec.h"

#include <pthread.h>

struct pst_lanes;

/* Sets *ret (owned) to lanes for the engine's local ranks; called before these
 * are started. */
enum pst_status pst_lanes_new(struct pst_engine *engine, struct pst_lanes **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Joins all threads. Call this before freeing the ranks. NULL is accepted. */
void pst_lanes_free(struct pst_lanes *lanes);
/* Returns the kernel pool of the i-th local rank. */
struct pst_pool *pst_lanes_pool(const struct pst_lanes *lanes, unsigned i);

/* Returns the thread of the i-th local rank; the caller's for the first. */
pthread_t pst_lanes_thread(const struct pst_lanes *lanes, unsigned i);

/* pst_lanes_source sets the data source of a step. pst_lanes_fill, whose ctx is
 * the lanes, calls it under a lock; any thread. */
void pst_lanes_source(struct pst_lanes *lanes, pst_fill_fn fill, void *ctx);
enum pst_status pst_lanes_fill(void *ctx, uint64_t step, unsigned microbatch,
                               unsigned input, void *dst,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Runs the step that all ranks have begun. Returns the first failure by rank
 * number; the other ranks stop at their next wait. */
enum pst_status pst_lanes_run(struct pst_lanes *lanes,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Stops ranks at their next wait, so that their state can be read. Ranks that
 * still compute after a second are abandoned. */
void pst_lanes_stop(struct pst_lanes *lanes);
/* True if a rank was abandoned by pst_lanes_stop. Between steps. */
bool pst_lanes_are_stuck(struct pst_lanes *lanes);
/* True while the i-th local rank runs: only its atomics may be read then. */
bool pst_lanes_runs(struct pst_lanes *lanes, unsigned i);

#endif
