// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_LINES_H
#define PENSTOCK_TESTS_SCHED_LINES_H
/* A schedule as lines "r0 0F0 0F1 ...", and what its ranks hold. */
#include "stages/base/str.h"
#include "stages/sched/sched.h"

static inline void print_lines(const struct pst_schedule *sched,
                               struct pst_str *out)
{
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        pst_str_addf(out, "r%u", r);
        if (sched->ranks[r].n)
            pst_str_add(out, " ");
        pst_actions_print(sched->ranks[r].at, sched->ranks[r].n, " ", out);
        pst_str_add(out, "\n");
    }
}

/* Returns the maximum number of (stage, microbatch) pairs of that rank that had
 * F and not yet B or W at the same time. */
static inline unsigned peak_of_rank(const struct pst_schedule *sched,
                                    unsigned rank)
{
    unsigned held = 0, peak = 0;

    for (size_t i = 0; i < sched->ranks[rank].n; i++) {
        const unsigned kind = sched->ranks[rank].at[i].kind;

        held += kind == PST_ACT_F;
        held -= held && (kind == PST_ACT_B || kind == PST_ACT_W);
        peak = PST_MAX(peak, held);
    }
    return peak;
}

#endif
