// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_LANES_H
#define PENSTOCK_STAGES_RUN_LANES_H
/*
 * Ranks of one process side by side: each has a thread and a kernel pool of its
 * own. The first rank's thread is the caller's, which also watches the others.
 * What ranks share in a step is the transport, the weights of microbatches
 * (read only) and the source of data, which one rank asks at a time.
 *
 * Exec thread, but where it says otherwise.
 */
#include "stages/run/exec.h"

struct pst_lanes;

/* For the engine's local ranks, which have not been started. Returns owned. */
enum pst_status pst_lanes_new(struct pst_engine *engine, struct pst_lanes **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Before the ranks; waits for all threads. NULL is accepted. */
void pst_lanes_free(struct pst_lanes *lanes);
/* Of the i-th local rank. */
struct pst_pool *pst_lanes_pool(const struct pst_lanes *lanes, unsigned i);

/* In place of `fill`, with the lanes as its ctx. Any thread. */
void pst_lanes_source(struct pst_lanes *lanes, pst_fill_fn fill, void *ctx);
enum pst_status pst_lanes_fill(void *ctx, uint64_t step, unsigned microbatch,
                               unsigned input, void *dst,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Runs the step that all ranks have begun. The first failure in the order of
 * ranks counts; the others stop where they wait. */
enum pst_status pst_lanes_run(struct pst_lanes *lanes,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Whoever waits stops; ranks that compute for a second more are left alone. So
 * they can be described. */
void pst_lanes_stop(struct pst_lanes *lanes);
/* True if a rank is left alone so. Between steps. */
bool pst_lanes_are_stuck(struct pst_lanes *lanes);
/* True while that local rank runs: nothing of it may be read but atomics. */
bool pst_lanes_runs(struct pst_lanes *lanes, unsigned i);

#endif
