// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SIMULATE_H
#define PENSTOCK_STAGES_SCHED_SIMULATE_H
/*
 * A step played through event by event: each rank takes its actions in order,
 * work begins when the rank is free and its inputs have come.
 *
 * A message leaves when it is sent, its receive is posted and the sender's
 * earlier messages have left; it arrives after bytes / bandwidth and the
 * latency. Without overlap the sender does nothing else meanwhile. A schedule
 * without messages gets them: each value leaves when the work that made it
 * ends. Copies of the stash are made one after another, each as soon as the
 * work before it has ended; work waits for those that it needs. A reduction
 * begins when all its owners have come to it. The optimizer
 * begins when all ranks have ended.
 *
 * Any thread, one at a time.
 */
#include "stages/sched/costs.h"
#include "stages/sched/timeline.h"

struct pst_sim_rank {
    double peak_bytes;  /* fixed, and what microbatches in flight hold */
    unsigned peak_held; /* most (stage, microbatch) with F and not B or W */
    double stash_wait;  /* seconds in which work waited for copies */
};

struct pst_sim {
    struct pst_timeline timeline; /* explained */
    double makespan;              /* until the last action of the schedule */
    double step;                  /* with the optimizer */
    double bubble;                /* mean over ranks */
    struct pst_sim_rank *ranks;
    struct pst_shares *shares; /* per rank */
};

/* PST_ERR_INPUT if the lists wait for each other; costs: of as many stages.
 * Fills ret on success; release with pst_sim_fini. */
enum pst_status pst_schedule_simulate(const struct pst_schedule *sched,
                                      const struct pst_costs *costs,
                                      struct pst_sim *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pst_sim_fini(struct pst_sim *sim);

#endif
