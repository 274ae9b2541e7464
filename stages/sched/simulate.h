// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SIMULATE_H
#define PENSTOCK_STAGES_SCHED_SIMULATE_H
/*
 * Discrete-event simulation of a step: each rank takes its actions in order;
 * work begins when the rank is free and its inputs have arrived.
 *
 * A message leaves when it is sent, its receive is posted and the sender's
 * earlier messages have left; it arrives after bytes / bandwidth plus the
 * latency. Without overlap the sender does nothing else meanwhile. In a
 * schedule without messages each value leaves when the work that produced it
 * ends. Copies of the stash run one after another, each as soon as the work
 * before it has ended; work waits for those that it needs. A reduction begins
 * when all its owners have reached it. The optimizer begins when all ranks have
 * ended.
 *
 * Any thread, one at a time.
 */
#include "stages/sched/costs.h"
#include "stages/sched/timeline.h"

struct pst_sim_rank {
    double peak_bytes; /* fixed bytes, and bytes of microbatches in flight */
    /* maximum number of (stage, microbatch) pairs with F but not yet B or W */
    unsigned peak_held;
    double stash_wait; /* seconds in which work waited for copies */
};

struct pst_sim {
    struct pst_timeline timeline; /* with the waits and their causes */
    double makespan;              /* end of the last action of the schedule */
    double step;                  /* makespan and the optimizer */
    /* share of the step without work, mean over ranks */
    double bubble;
    struct pst_sim_rank *ranks;
    struct pst_shares *shares; /* per rank */
};

/* Simulates a step. PST_ERR_INPUT if the lists deadlock. costs: for the same
 * number of stages. Fills ret on success; release with pst_sim_fini. */
enum pst_status pst_schedule_simulate(const struct pst_schedule *sched,
                                      const struct pst_costs *costs,
                                      struct pst_sim *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pst_sim_fini(struct pst_sim *sim);

#endif
