// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SORT_RADIX_H
#define PENSTOCK_STAGES_OPS_SORT_RADIX_H
/*
 * Sorts lanes by radix sort of keys, and finds the first k by partitioning. The
 * order is that of sort.h: NaN is the largest, equal elements stay in index
 * order, except where sort.h follows PyTorch's own order. Lanes are divided
 * among threads. Scratch is the call's.
 */
#include "stages/ops/sort/sort.h"

/* Returns how many pairs are collected before only the first k of n are
 * kept. */
static inline int64_t pst_sort_capacity(int64_t n, int64_t k)
{
    return k < n ? 2 * k + 128 : n;
}

/* Returns bytes of scratch for whole lanes of n elements. */
static inline size_t pst_sort_pairs(int64_t n, unsigned threads)
{
    return (size_t)threads * 2 * (size_t)n * sizeof(struct pst_sort_pair);
}

/* Sorts each lane along dim, with indices. */
void pst_sort_all(const struct pst_call *c, int64_t dim, bool descending,
                  bool stable);

/* Finds the first k of each lane as pst_sort_select does. pst_sort_topk_scratch
 * returns its bytes of scratch. */
void pst_sort_topk(const struct pst_call *c, int64_t dim, int64_t k,
                   bool descending, bool sorted);
size_t pst_sort_topk_scratch(int64_t n, int64_t k, unsigned threads);

#endif
