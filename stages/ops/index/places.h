// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_PLACES_H
#define PENSTOCK_STAGES_OPS_INDEX_PLACES_H
/*
 * Moves elements between an indexed tensor (the table) and a tensor with the
 * selected elements in order (the list), one block of indices at a time: the
 * offsets of a block are computed and checked before its elements are moved, so
 * that the loops that move have no branches. Thread-safe; borrows everything
 * for the call.
 */
#include "stages/ops/index/bounds.h"

#include "stages/ops/pointwise/nd.h"

#define PST_PLACES 256 /* indices of a block */
/* An offset that stays negative after additions. */
#define PST_PLACES_NONE (INT64_MIN / 2)

enum pst_places_mode {
    PST_PLACES_READ,  /* list := table */
    PST_PLACES_WRITE, /* table := list; the last of several writes wins */
    PST_PLACES_ADD,   /* table += list, in the order of the list */
};

/* Moves n elements (of a row) between table[at[k] + k*step] and
 * list[k*apart]. */
typedef void (*pst_places_fn)(enum pst_dtype dtype, char *table,
                              const int64_t *at, int64_t step, char *list,
                              int64_t apart, int64_t n);
/* Returns the loop for a dtype; sums of 16-bit floats are rounded after each
 * addition. */
pst_places_fn pst_places_mover(enum pst_dtype dtype, enum pst_places_mode mode);

/* Loads indices first, first + step, ... of n <= PST_PLACES:
 * at[k] = before[k] (NULL: 0) + index * stride.
 * wrap: negative indices count from the end. An index out of range is a fault
 * of the call and sets at[k] to PST_PLACES_NONE; the result is then false. */
bool pst_places_load(const struct pst_call *c, const struct pst_operand *index,
                     int64_t first, int64_t step, int64_t n, int64_t size,
                     int64_t stride, bool wrap, const int64_t *before,
                     int64_t *at);

/* Index tensors that broadcast together. Each of their positions (a "place")
 * selects a slice of the table and a slice of the list (its "window"). */
struct pst_places {
    const struct pst_call *c;
    const struct pst_operand *index[PST_ND_MAX - 1];
    unsigned n; /* index tensors */
    /* the table's size and stride along each indexed dimension */
    int64_t size[PST_ND_MAX - 1], stride[PST_ND_MAX - 1];
    bool wrap;
    struct pst_nd places; /* operand 0: list, 1...: index tensors */
    struct pst_nd window; /* operand 0: list, 1: table */
    char *list, *table;   /* elements of one dtype */
    enum pst_dtype dtype;
    enum pst_places_mode mode;
};

/* index and index_put as one loop over elements i of one shape: list[i]
 * corresponds to the table's element at table offset(i) + sum of index[k][i] *
 * stride[k]. */
#define PST_INDEX_MOST (PST_ND_MAX - 1)
struct pst_index_loop {
    struct pst_meta list, table; /* have the same shape */
    unsigned n;
    const struct pst_operand *of[PST_INDEX_MOST];
    /* index tensors, broadcast to the shape of list and table */
    struct pst_meta index[PST_INDEX_MOST];
    int64_t size[PST_INDEX_MOST], stride[PST_INDEX_MOST];
};
/* Describes a call of index or, if `put`, of index_put; false if an index is a
 * mask, or if there are more than PST_INDEX_MOST index tensors. */
bool pst_index_loop_of(const struct pst_call *c, bool put,
                       struct pst_index_loop *ret);

/* Moves all slices. Results do not depend on the number of threads. */
void pst_places_run(struct pst_places *p, struct pst_pool *pool);

#endif
