// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SORT_FAST_H
#define PENSTOCK_STAGES_OPS_SORT_FAST_H
/*
 * Order of lanes by digits of keys, and the first of an order by division.
 * The same order as in sort.h: NaN is the largest, what is equal stays in the
 * order of its indices, but where sort.h has an order of PyTorch's. Threads
 * share lanes. Scratch is the call's.
 */
#include "stages/ops/sort/sort.h"

/* Pairs that are collected before they are cut to k of n. */
static inline int64_t pst_sort_room(int64_t n, int64_t k)
{
    return k < n ? 2 * k + 128 : n;
}

/* Bytes of scratch for whole lanes of n elements. */
static inline size_t pst_sort_pairs(int64_t n, unsigned threads)
{
    return (size_t)threads * 2 * (size_t)n * sizeof(struct pst_sort_pair);
}

/* All of each lane along dim, in order, with their indices. */
void pst_sort_all(const struct pst_call *c, int64_t dim, bool descending,
                  bool stable);

/* The first k of each lane as pst_sort_select has them, and bytes of scratch
 * for that. */
void pst_sort_topk(const struct pst_call *c, int64_t dim, int64_t k,
                   bool descending, bool sorted);
size_t pst_sort_topk_scratch(int64_t n, int64_t k, unsigned threads);

/* Position in the ascending order of a lane of n elements, of which `nans` are
 * no numbers. */
typedef int64_t (*pst_sort_choice_fn)(const struct pst_call *c, int64_t n,
                                      int64_t nans);
/* One element of each lane. */
void pst_sort_choose(const struct pst_call *c, const struct pst_lane *l,
                     pst_sort_choice_fn choice);
/* Element k of the order of each lane along dim, as pst_sort_kth has it. */
void pst_sort_kth_all(const struct pst_call *c, int64_t dim, int64_t k);

#endif
