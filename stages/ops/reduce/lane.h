// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_LANE_H
#define PENSTOCK_STAGES_OPS_REDUCE_LANE_H
/*
 * Operators along one dimension of a contiguous tensor: a lane consists of the
 * elements that differ only in that dimension, with stride `inner`.
 */
#include "stages/graph/tensor.h"

struct pst_lane {
    int64_t outer, size, inner;
};

/* Returns the lanes along `dim`, which is in -rank..rank-1; a tensor without
 * dimensions is one lane of one element. */
static inline struct pst_lane pst_lane_of(const struct pst_meta *x, int64_t dim)
{
    const unsigned d = (unsigned)pst_meta_dim(x, dim);
    struct pst_lane l = {1, x->rank > 0 ? x->size[d] : 1, 1};

    for (unsigned k = 0; k < x->rank; k++) {
        if (k < d)
            l.outer *= x->size[k];
        else if (k > d)
            l.inner *= x->size[k];
    }
    return l;
}

/* Returns all elements as one lane. */
static inline struct pst_lane pst_lane_all(const struct pst_meta *x)
{
    return (struct pst_lane){1, pst_meta_numel(x), 1};
}

static inline int64_t pst_lane_count(const struct pst_lane *l)
{
    return l->outer * l->inner;
}

/* Returns the offset of element 0 of lane k; each lane has `size` elements. */
static inline int64_t pst_lane_first(const struct pst_lane *l, int64_t k,
                                     int64_t size)
{
    return k / l->inner * size * l->inner + k % l->inner;
}

#endif
