// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_EMBED_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_EMBED_H
/* Parameters of code/embed.cu. */
#include "stages/ops/cuda/code/params.h"

/* to (n, width) = rows of from (rows, width) that the indices name, in units of
 * `unit` bytes; 0 for those out of range. */
struct pst_cuda_embed {
    void *to;
    const void *from, *index;
    int64_t n, rows, width; /* width: units */
    uint32_t unit;          /* 1, 2, 4, 8, 16 */
    uint32_t wide;          /* indices are i64, else i32 */
    struct pst_cuda_fault fault;
};

/* to (rows, width) = sums of the rows of g (n, width) by index. start: rows + 1
 * integers, where each row's positions begin in `order`; they are counted
 * there first. next: rows integers. found, order: n positions each. */
struct pst_cuda_embed_grad {
    float *to;
    const float *g;
    const void *index;
    int32_t *start, *next, *found, *order;
    int64_t n, rows, width, padding; /* padding: a row that is left out */
    uint32_t wide;
    uint32_t accumulate; /* to += */
    uint32_t by_count;   /* divided by the number of positions */
    struct pst_cuda_fault fault;
};

#endif
