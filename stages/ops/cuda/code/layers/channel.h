// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_CHANNEL_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_CHANNEL_H
/* Parameters of channel.cu: norms over channels of contiguous (n, c, s),
 * with statistics (blocks, groups) (stages/ops/norm/channel.h). */
#include "stages/ops/cuda/code/params.h"

/*
 * y = (x - mean) rstd w + b, or with g
 *     y = rstd (g w - mean of a w - (x - mean) rstd mean of b w),
 * where the means over each group's channels are in `means` (blocks, groups,
 * 2); NULL: without them.
 */
struct pst_cuda_channels {
    const void *x, *w, *b, *g; /* w, b: NULL if absent */
    const void *mean, *rstd;
    const void *sum_a, *sum_b; /* (blocks, c) */
    void *means, *y;
    uint32_t n, c, s, blocks, groups;
    double count; /* elements of a group in a block */
};

#endif
