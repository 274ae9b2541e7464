// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_GRAD_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_GRAD_H
/* Parameters of grad.cu. */
#include "stages/ops/cuda/code/params.h"

/* to += from, for any strides; operand 0 of nd is `to`. */
struct pst_cuda_accumulate {
    struct pst_cuda_nd nd;
    void *to;
    const void *from;
};

/* to += from for n contiguous elements, both 16-byte aligned. */
struct pst_cuda_accumulate_dense {
    void *to;
    const void *from;
    int64_t n;
};

#endif
