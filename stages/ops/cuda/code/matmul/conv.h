// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_MATMUL_CONV_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_MATMUL_CONV_H
/* Parameters of conv.cu: one of the tensors x, y, w of a correlation from
 * the other two (stages/ops/conv/conv.h), all contiguous, with fewer than 2^31
 * elements each. */
#include "stages/ops/cuda/code/params.h"

#define PST_CUDA_CONV_TILE 64 /* rows and columns of a tile */
#define PST_CUDA_CONV_K    16 /* depth of a tile */

enum pst_cuda_conv_form { PST_CUDA_CONV_Y, PST_CUDA_CONV_X, PST_CUDA_CONV_W };

/* A channel and an element of the window, together. d: the element's position
 * in the window, dilated. a: offset in a row of w; b: offset in x. In form x, a
 * is the offset in w apart from the row's, and b the offset of the channel in
 * y. */
struct pst_cuda_conv_entry {
    int32_t a, b;
    int16_t d[4];
};

/*
 * Each form is a matmul for each group:
 *     form  rows               columns     depth
 *     y     channels of y      positions of y (channel of x, window)
 *     x     channels of x      positions of x (channel of y, window)
 *     w     channels of y      (channel of x, window)  positions of y
 * where the positions of all images are counted together. If there are several
 * splits, split s has the depth from s * per_split on, and writes
 * partial[s][group][row][column].
 */
struct pst_cuda_conv {
    const float *x, *y, *w, *bias; /* bias: one number per row; NULL: none */
    float *to, *partial;
    struct pst_cuda_conv_entry *table;
    int32_t n, groups, ci, co; /* ci, co: channels of a group */
    int32_t in[3], out[3], k[3], stride[3], pad[3], dil[3];
    int32_t in_volume, out_volume, k_volume;
    int32_t rows, cols, depth, per_split, entries;
    uint32_t form, splits, col_tiles, row_tiles;
    uint32_t accumulate; /* true: the result is added to `to` */
};

#endif
