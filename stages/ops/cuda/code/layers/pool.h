// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_POOL_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_POOL_H
/* Parameters of pool.cu: max pools. */
#include "stages/ops/cuda/code/params.h"

/* y and at (planes, out) = the maxima of windows of x (planes, in), and their
 * indices in the plane. adaptive: the windows divide the plane. */
struct pst_cuda_max_pool {
    const float *x;
    float *y;
    int64_t *at;
    int64_t n; /* results */
    int32_t in[3], out[3];
    int32_t size[3], stride[3], pad[3], dil[3];
    uint32_t adaptive;
};

#endif
