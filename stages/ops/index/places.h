// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_PLACES_H
#define PENSTOCK_STAGES_OPS_INDEX_PLACES_H
/*
 * Moving elements between a tensor with places (the table) and one that has
 * them side by side (the list), a block of places at a time: their offsets are
 * read and checked first, so that the loops that move have no branches.
 * Thread-safe; borrows all for the call.
 */
#include "stages/ops/index/check.h"

#include "stages/ops/pointwise/nd.h"

#define PST_PLACES 256 /* of a block */
/* Stays negative whatever is added. */
#define PST_PLACES_NONE (INT64_MIN / 2)

enum pst_places_mode {
    PST_PLACES_READ,  /* list := table */
    PST_PLACES_WRITE, /* table := list; the last one of a place stays */
    PST_PLACES_ADD,   /* table += list, in the order of the list */
};

/* n elements (of a row): table[at[k] + k*step] and list[k*apart]. */
typedef void (*pst_places_fn)(enum pst_dtype dtype, char *table,
                              const int64_t *at, int64_t step, char *list,
                              int64_t apart, int64_t n);
/* For elements of that dtype; sums of 16-bit floats are rounded each. */
pst_places_fn pst_places_mover(enum pst_dtype dtype, enum pst_places_mode mode);

/* Indices first, first + step, ... of n <= PST_PLACES:
 * at[k] = before[k] (NULL: 0) + index * stride.
 * wrap: negative ones count from the end. One that is out of range is a fault
 * of the call and sets at[k] to PST_PLACES_NONE; then the result is false. */
bool pst_places_load(const struct pst_call *c, const struct pst_operand *index,
                     int64_t first, int64_t step, int64_t n, int64_t size,
                     int64_t stride, bool wrap, const int64_t *before,
                     int64_t *at);

/* Index tensors that broadcast together; each place is a window of the table
 * and a window of the list. */
struct pst_places {
    const struct pst_call *c;
    const struct pst_operand *index[PST_ND_MAX - 1];
    unsigned n;                                           /* index tensors */
    int64_t size[PST_ND_MAX - 1], stride[PST_ND_MAX - 1]; /* of the table */
    bool wrap;
    struct pst_nd places; /* operand 0: list, 1...: index tensors */
    struct pst_nd window; /* operand 0: list, 1: table */
    char *list, *table;   /* elements of one dtype */
    enum pst_dtype dtype;
    enum pst_places_mode mode;
};

/* All members but the offsets are set; threads do not change bits. */
void pst_places_run(struct pst_places *p, struct pst_pool *pool);

#endif
