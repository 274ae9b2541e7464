// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_OWNERS_H
#define PENSTOCK_STAGES_LAYOUT_OWNERS_H
/*
 * Which ranks have accumulators of a parameter, which of these each of them
 * sums, and in what order (reduce.h). Pure functions; any thread.
 */
#include "stages/layout/flat.h"
#include "stages/layout/role.h"

/* Stages that may share one parameter; more are refused when the engine is
 * made. */
#define PST_MAX_SHARED_STAGES 256

/* Elements of a transmitted parameter that are summed at a time. */
#define PST_OWNERS_PIECE ((int64_t)1 << 20)

struct pst_owners {
    const struct pst_plan_param *param;
    unsigned ranks[PST_MAX_SHARED_STAGES]; /* in the order of their first
                                              stage */
    unsigned n, me;                        /* me: position of this rank */
    unsigned home;                         /* rank, of a transmitted one */
    struct {
        unsigned stage, use, rank;
    } parts[PST_MAX_SHARED_STAGES]; /* in the order of the sum */
    unsigned n_parts;
    size_t item;          /* bytes of an element */
    int64_t begin, numel; /* elements that this replica sums: all, or its
                             share */
};

/* flats: of the plan. */
struct pst_owners pst_owners_of(const struct pst_rank_role *role,
                                const struct pst_flats *flats, int param);
/* Elements [begin, begin + n) are summed by owner k. */
void pst_owners_segment(const struct pst_owners *o, unsigned k, int64_t *begin,
                        int64_t *n);
/* Bytes of one part as it arrives. */
size_t pst_owners_slot(const struct pst_owners *o);
/* Bytes of the workspace that the sum of a parameter takes on this rank. */
size_t pst_owners_work(const struct pst_rank_role *role,
                       const struct pst_flats *flats, int param);

#endif
