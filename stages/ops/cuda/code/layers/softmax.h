// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SOFTMAX_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SOFTMAX_H
/* Parameters of softmax.cu: runs of n elements, `inner` apart, at outer *
 * inner positions. */
#include "stages/ops/cuda/code/params.h"

enum pst_cuda_softmax_kind {
    PST_CUDA_SOFTMAX,
    PST_CUDA_LOG_SOFTMAX,
    PST_CUDA_SAFE_SOFTMAX,
};

/* y = softmax(x), or its variant `kind`. If g is not NULL, it is the gradient
 * of the result, x the result, and y the gradient of the input. */
struct pst_cuda_softmax {
    const void *x, *g;
    void *y;
    int64_t outer, n, inner;
    uint32_t kind; /* enum pst_cuda_softmax_kind */
    /* enum pst_cuda_type, for kernels of 16 bits */
    uint32_t x_type, g_type, y_type;
};

#endif
