// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_DROP_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_DROP_H
/* Parameters of drop.cu. */
#include "stages/ops/cuda/code/params.h"

/* y[i] = x[i] * kept, or 0 if 24 bits of number i of the stream are below
 * `limit`; contiguous, y may be x. */
struct pst_cuda_drop {
    const void *x;
    void *y;
    uint8_t *keep; /* the elements that are kept; NULL: not wanted */
    int64_t n;
    const uint32_t *stream; /* 4 words; NULL if limit is 0 */
    double kept;
    uint32_t limit; /* 0: never */
    uint32_t type;  /* enum pst_cuda_type */
};

#endif
