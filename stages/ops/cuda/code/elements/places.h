// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_PLACES_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_PLACES_H
/* Parameters of places.cu: elements of a table, selected by index
 * tensors. */
#include "stages/ops/cuda/code/params.h"

#define PST_CUDA_PLACES 3 /* maximum number of index tensors */

/*
 * Element i of the list (operand 0 of nd) belongs to the element of the table
 * at its offset in operand 1 plus the sum of index k (operand k + 2) * stride.
 * An index out of range is a fault, and selects no element; with `wrap` indices
 * from -size on count from the end.
 */
struct pst_cuda_places {
    struct pst_cuda_nd nd;
    const void *index[PST_CUDA_PLACES];
    int64_t size[PST_CUDA_PLACES], stride[PST_CUDA_PLACES];
    uint32_t wide[PST_CUDA_PLACES]; /* index k is i64, else i32 */
    uint32_t n, wrap;
    uint32_t bytes; /* size of an element: 1, 2, 4, 8 */
    void *list, *table;
    uint64_t number; /* bits of the number to write if list is NULL */
    int32_t *last; /* per element of the table: the last list element for it */
    /* Per element of the list: its offset in the table, or -1; its value. */
    int64_t *keys;
    float *values;
    struct pst_cuda_fault fault;
};

#endif
