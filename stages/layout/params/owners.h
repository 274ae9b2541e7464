// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PARAMS_OWNERS_H
#define PENSTOCK_STAGES_LAYOUT_PARAMS_OWNERS_H
/*
 * The ranks that have accumulators of a parameter, the part of the sum that
 * each computes, and the order of the sum (reduce.h). Pure functions; any
 * thread.
 */
#include "stages/layout/params/flat.h"
#include "stages/layout/role.h"

/* Maximum number of stages that share one parameter; the engine refuses more.
 */
#define PST_MAX_SHARED_STAGES 256

/* Number of elements of a transmitted parameter that are summed at a time. */
#define PST_OWNERS_PIECE ((int64_t)1 << 20)

struct pst_owners {
    const struct pst_plan_param *param;
    /* ranks that use the parameter, in the order of their first stages */
    unsigned ranks[PST_MAX_SHARED_STAGES];
    unsigned n, me; /* me: index of this rank in ranks */
    unsigned owner; /* rank of the owner, for a transmitted parameter */
    struct {
        unsigned stage, use, rank;
    } parts[PST_MAX_SHARED_STAGES]; /* accumulators, in summation order */
    unsigned n_parts;
    size_t item; /* bytes of an element */
    /* elements that this replica sums: all, or its shard */
    int64_t begin, numel;
};

/* Returns the owners of a parameter; param: index in the plan's params. */
struct pst_owners pst_owners_of(const struct pst_rank_role *role,
                                const struct pst_flats *flats, int param);
/* Sets the range of elements [begin, begin + n) that ranks[k] sums. */
void pst_owners_segment(const struct pst_owners *o, unsigned k, int64_t *begin,
                        int64_t *n);
/* Returns the bytes of the buffer for one received part. */
size_t pst_owners_slot(const struct pst_owners *o);
/* Returns the bytes of workspace that the parameter's reduction takes on this
 * rank. */
size_t pst_owners_work(const struct pst_rank_role *role,
                       const struct pst_flats *flats, int param);

#endif
