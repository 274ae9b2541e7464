// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_AUTO_GREEDY_H
#define PENSTOCK_STAGES_SCHED_AUTO_GREEDY_H
/*
 * A list scheduler: plays a step in time and lets each rank that is free take
 * the best work that is ready, within its memory. Gradients of parameters (W)
 * wait for gaps. Private to stages/sched/.
 */
#include "stages/sched/costs.h"

struct pst_greedy_options {
    unsigned in_flight;  /* most microbatches a rank has begun, not ended */
    double memory_limit; /* bytes of a rank; 0: none */
    bool forward_first;  /* of work that is ready; else backward first */
    bool split;          /* I and W; else B */
    unsigned backlog;    /* so many W of a rank go before other work; 0: any */
    /* W is not begun if other work is known to come within this share of its
     * time. */
    double patience;
};

/*
 * Finds rank_of filled in and lists that are empty. Each stage takes its
 * microbatches in order. A rank begins a microbatch only if its memory holds
 * all of its stages until their end, so it always ends; the first one is begun
 * whatever the limit. The result's times are as the simulator has them, but
 * without reductions.
 */
struct pst_greedy_result {
    double makespan;
    double peak; /* bytes of the rank that needs most */
};

enum pst_status pst_greedy_generate(struct pst_schedule *sched,
                                    const struct pst_costs *costs,
                                    const struct pst_greedy_options *options,
                                    struct pst_greedy_result *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
