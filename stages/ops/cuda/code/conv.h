// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_CONV_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_CONV_H
/* Parameters of code/conv.cu: one of the tensors x, y, w of a correlation from
 * the other two (stages/ops/conv/conv.h), all contiguous, with fewer than 2^31
 * elements each. */
#include "stages/ops/cuda/code/params.h"

#define PST_CUDA_CONV_TILE 64 /* rows and columns of a tile */
#define PST_CUDA_CONV_K    16 /* depth of a tile */

enum pst_cuda_conv_form { PST_CUDA_CONV_Y, PST_CUDA_CONV_X, PST_CUDA_CONV_W };

/* A channel and an element of the window, together. a: offset in a row of w (of
 * form x: in w without its row); b: offset in x (of form x: in y, without the
 * window); d: the window's offset in x. */
struct pst_cuda_conv_entry {
    int32_t a, b;
    int16_t d[4];
};

/*
 * Each form is a product for each group:
 *     form  rows               columns     depth
 *     y     channels of y      places of y (channel of x, window)
 *     x     channels of x      places of x (channel of y, window)
 *     w     channels of y      (channel of x, window)  places of y
 * where the places of all images are counted together. If there are several
 * splits, split s has the depth from s * per_split on, and writes
 * partial[s][group][row][column].
 */
struct pst_cuda_conv {
    const float *x, *y, *w, *bias; /* bias of rows; NULL: none */
    float *to, *partial;
    struct pst_cuda_conv_entry *table;
    int32_t n, groups, ci, co; /* channels of a group */
    int32_t in[3], out[3], k[3], stride[3], pad[3], dil[3];
    int32_t in_volume, out_volume, k_volume;
    int32_t rows, cols, depth, per_split, entries;
    uint32_t form, splits, col_tiles, row_tiles;
    uint32_t accumulate; /* += */
};

#endif
