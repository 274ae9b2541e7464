// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_SCAN_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_SCAN_H
/* Parameters of scan.cu: running sums, and numbers in equal steps. */
#include "stages/ops/cuda/code/params.h"

/* y = running sums along the middle dimension of x (outer, size, inner). */
struct pst_cuda_scan {
    const void *x;
    void *y;
    int64_t outer, size, inner;
    uint32_t x_type, y_type; /* enum pst_cuda_type; for integer kernels */
};

/* y[i] = start + i * step, or first + i * by for integer types. */
struct pst_cuda_range {
    void *y;
    int64_t n, first, by;
    double start, step;
    uint32_t type;
};

#endif
