// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_VEC_H
#define PENSTOCK_STAGES_BASE_VEC_H
/*
 * Growable arrays: struct PST_VEC(struct node *) nodes. A zeroed array is
 * empty. Elements move when the array grows.
 */
#include "stages/base/alloc.h"

#define PST_VEC(type)                                                          \
    {                                                                          \
        type *at;                                                              \
        size_t n, cap;                                                         \
    }

/* Reserves capacity for `more` elements. False if memory runs out; the array is
 * then unchanged. */
#define pst_vec_reserve(tag, v, more)                                          \
    pst_vec_grow(tag, (void **)&(v)->at, &(v)->cap, (v)->n, more,              \
                 sizeof(*(v)->at))
/* Appends x. False if memory runs out; the array is then unchanged. */
#define pst_vec_push(tag, v, x)                                                \
    ((v)->n < (v)->cap || pst_vec_reserve(tag, v, 1)                           \
         ? ((v)->at[(v)->n++] = (x), 1)                                        \
         : 0)
#define pst_vec_fini(v)                                                        \
    (pst_free((v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

int pst_vec_grow(enum pst_tag tag, void **at, size_t *cap, size_t n,
                 size_t more, size_t size) PST_MUST_CHECK;

#endif
