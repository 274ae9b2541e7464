// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_EMBED_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_EMBED_H
/* Parameters of embed.cu. */
#include "stages/ops/cuda/code/params.h"

/* to (n, width) = the rows of `from` (rows, width) that the indices select; 0
 * for indices out of range. Rows are copied in units of `unit` bytes. */
struct pst_cuda_embed {
    void *to;
    const void *from, *index;
    int64_t n, rows, width; /* width: units of a row */
    uint32_t unit;          /* 1, 2, 4, 8, 16 */
    uint32_t wide;          /* indices are i64, else i32 */
    struct pst_cuda_fault fault;
};

/* Row r of `to` (rows, width) = the sum of the rows of g (n, width) whose index
 * is r. Scratch: start[r] is where the positions of row r begin in found and
 * order (before that it has counts); next[r] is the next free entry of row r in
 * found; found has the positions (n) by row, order has them in ascending order,
 * too. */
struct pst_cuda_embed_grad {
    void *to;
    const void *g, *index;
    int32_t *start, *next, *found, *order;
    /* padding: an index that gets no gradient */
    int64_t n, rows, width, padding;
    uint32_t wide;
    uint32_t accumulate; /* true: sums are added to `to` */
    uint32_t by_count;   /* rows are divided by their number of positions */
    uint32_t type;       /* enum pst_cuda_type: that of `to` and g */
    struct pst_cuda_fault fault;
};

#endif
