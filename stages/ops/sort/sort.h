// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SORT_SORT_H
#define PENSTOCK_STAGES_OPS_SORT_SORT_H
/* What operators share that put the elements of a lane in order. */
#include "stages/ops/core/infer.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/reduce/lane.h"

/* An element by its rank in the order of its dtype: NaN is the largest. */
struct pst_sort_item {
    int64_t key, index; /* index within the lane */
};

struct pst_sort_pair {
    uint64_t key;
    int64_t index; /* within the lane */
};

/* The k smallest of n keys come first, in order if sorted. Which of equal ones,
 * and in what order, as in PyTorch's topk. */
void pst_sort_select(struct pst_sort_pair *a, int64_t n, int64_t k,
                     bool sorted);
/* All in order, as in PyTorch's sort without stable=True; up to
 * PST_SORT_SMALL elements that is stable. */
void pst_sort_unstable(struct pst_sort_pair *a, int64_t n);
#define PST_SORT_SMALL 16
/* a[k] becomes what it would be in order, as in PyTorch's kthvalue. */
void pst_sort_kth(struct pst_sort_pair *a, int64_t n, int64_t k);

/* The lane of elements first, first + inner, ... */
void pst_sort_load(const struct pst_operand *x, int64_t first, int64_t inner,
                   int64_t n, struct pst_sort_item *ret);
/* The same as pairs, the largest first if descending; room for 2 n items. */
struct pst_sort_pair *pst_sort_load_pairs(const struct pst_operand *x,
                                          int64_t first, int64_t inner,
                                          int64_t n, bool descending,
                                          struct pst_sort_item *room);
/* Stable, by merging; `spare` has room for n too. */
void pst_sort_items(struct pst_sort_item *items, struct pst_sort_item *spare,
                    int64_t n, bool descending);
#define PST_SORT_NAN INT64_MAX

/* Scratch for one lane along argument `dim` (-1: all elements): items and
 * spare. */
size_t pst_sort_scratch(const struct pst_call *c, int dim);
/* Element `from` of in[0] and its index in the lane to place `to` of both
 * results. */
void pst_sort_store(const struct pst_call *c, int64_t to, int64_t from,
                    int64_t index);
/* Result 0 like x with n elements along dimension `dim`, or without it if n < 0
 * (with 1 if keep); result 1 the same in i64. */
enum pst_status pst_sort_infer(struct pst_infer *c, unsigned dim_arg, int64_t n,
                               bool keep);
/* One element of each lane: OPERATOR(self, dim, keepdim), and its gradient. */
enum pst_status pst_sort_infer_one(struct pst_infer *c);
#define PST_SORT_PUT_ONE                                                       \
    "self: scatter_add(zeros_like(self), dim, "                                \
    "kept(result1, self, dim, keepdim), kept(grad, self, dim, keepdim))"

#endif
