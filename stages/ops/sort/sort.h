// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SORT_SORT_H
#define PENSTOCK_STAGES_OPS_SORT_SORT_H
/* Helpers of operators that order the elements of a lane. */
#include "stages/ops/core/infer.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/reduce/lane.h"

/* An element, with an integer key that has the order of the elements; NaN is
 * the largest. */
struct pst_sort_item {
    int64_t key, index; /* index within the lane */
};

struct pst_sort_pair {
    uint64_t key;
    int64_t index; /* within the lane */
};

/* Moves the k smallest of n keys to the front, in order if `sorted`. The choice
 * among equal keys, and their order, are those of PyTorch's topk. */
void pst_sort_select(struct pst_sort_pair *a, int64_t n, int64_t k,
                     bool sorted);
/* Sorts n pairs by key, with equal keys in the order of PyTorch's sort without
 * stable=True; stable for up to PST_SORT_SMALL elements. */
void pst_sort_unstable(struct pst_sort_pair *a, int64_t n);
#define PST_SORT_SMALL 16
/* Reorders a so that a[k] has the k-th smallest key, counted from 0
 * (quickselect). Equal keys are ordered as by PyTorch's kthvalue. */
void pst_sort_kth(struct pst_sort_pair *a, int64_t n, int64_t k);

/* Loads the lane of elements first, first + inner, ... */
void pst_sort_load(const struct pst_operand *x, int64_t first, int64_t inner,
                   int64_t n, struct pst_sort_item *ret);
/* Loads the lane as pairs, whose keys ascend or, if `descending`, descend with
 * the elements; scratch: capacity for 2 n items. */
struct pst_sort_pair *pst_sort_load_pairs(const struct pst_operand *x,
                                          int64_t first, int64_t inner,
                                          int64_t n, bool descending,
                                          struct pst_sort_item *scratch);
/* Sorts n items by key (stable merge sort); spare: memory for n more items. */
void pst_sort_items(struct pst_sort_item *items, struct pst_sort_item *spare,
                    int64_t n, bool descending);
#define PST_SORT_NAN INT64_MAX

/* Returns the bytes of scratch for one lane along argument `dim` (-1: all
 * elements): items and spare. */
size_t pst_sort_scratch(const struct pst_call *c, int dim);
/* Copies element `from` of in[0] and its index in the lane to position `to` of
 * both results. */
void pst_sort_store(const struct pst_call *c, int64_t to, int64_t from,
                    int64_t index);
/* Infers result 0: x with n elements along dimension `dim` or, if n < 0,
 * without this dimension (with size 1 if keep). Result 1 has the same sizes and
 * dtype i64. */
enum pst_status pst_sort_infer(struct pst_infer *c, unsigned dim_arg, int64_t n,
                               bool keep);
/* Inference of, and gradient for, OPERATOR(self, dim, keepdim), which returns
 * one element per lane. */
enum pst_status pst_sort_infer_one(struct pst_infer *c);
#define PST_SORT_PUT_ONE                                                       \
    "self: scatter_add(zeros_like(self), dim, "                                \
    "kept(result1, self, dim, keepdim), kept(grad, self, dim, keepdim))"

#endif
