// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_AUTO_GREEDY_H
#define PENSTOCK_STAGES_SCHED_AUTO_GREEDY_H
/*
 * A list scheduler: simulates a step in which each free rank takes the best
 * ready work within its memory. Gradients of parameters (W) fill gaps. Private
 * to stages/sched/.
 */
#include "stages/sched/costs.h"

struct pst_greedy_options {
    /* maximum number of microbatches begun but not ended on a rank */
    unsigned in_flight;
    double memory_limit; /* maximum bytes of a rank; 0: no limit */
    bool forward_first;  /* if F and B or I are ready, runs F first */
    bool split;          /* splits B into I and W */
    /* a rank prefers W if this many W are ready; 0: never */
    unsigned backlog;
    /* W does not begin if other work is known to become ready within this share
     * of its time. */
    double patience;
};

struct pst_greedy_result {
    double makespan;
    double peak; /* bytes of the rank that needs most */
};

/*
 * Fills the empty lists of a schedule whose rank_of is set. Each stage takes
 * its microbatches in order. A rank begins a microbatch only if its memory can
 * hold it on all of its stages until it ends, so the scheduler always
 * terminates; a microbatch that is alone on its rank may exceed the limit. The
 * times of the result are those of the simulator, but without reductions.
 */
enum pst_status pst_greedy_generate(struct pst_schedule *sched,
                                    const struct pst_costs *costs,
                                    const struct pst_greedy_options *options,
                                    struct pst_greedy_result *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
