// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SORT_FAST_H
#define PENSTOCK_STAGES_OPS_SORT_FAST_H
/*
 * Order of lanes by digits of keys, and the first of an order by division.
 * The same order as in sort.h: NaN is the largest, what is equal stays in the
 * order of its indices. Threads share lanes. Scratch is the call's.
 */
#include "stages/ops/sort/sort.h"

struct pst_sort_pair {
    uint64_t key;
    int64_t index; /* within the lane */
};

/* Pairs that are collected before they are cut to k of n. */
static inline int64_t pst_sort_room(int64_t n, int64_t k)
{
    return k < n ? 2 * k + 128 : n;
}

/* Bytes of scratch for the first k of lanes of n elements; a choice wants
 * k = n. */
static inline size_t pst_sort_pairs(int64_t n, int64_t k, unsigned threads)
{
    return (size_t)threads * 2 * (size_t)pst_sort_room(n, k) *
           sizeof(struct pst_sort_pair);
}

/* The first k of each lane along dim, in order, with their indices. */
void pst_sort_first(const struct pst_call *c, int64_t dim, int64_t k,
                    bool descending);

/* Position in the ascending order of a lane of n elements, of which `nans` are
 * no numbers. */
typedef int64_t (*pst_sort_choice_fn)(const struct pst_call *c, int64_t n,
                                      int64_t nans);
/* One element of each lane. */
void pst_sort_choose(const struct pst_call *c, const struct pst_lane *l,
                     pst_sort_choice_fn choice);

#endif
