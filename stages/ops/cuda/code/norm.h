// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_NORM_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_NORM_H
/* Parameters of code/norm.cu: layer norm and RMS norm over contiguous rows of
 * n f32 (stages/ops/norm/norm.h). */
#include "stages/ops/cuda/code/params.h"

/* Columns and rows that a block of the sums over rows works on at a time. */
#define PST_CUDA_NORM_COLS 32
#define PST_CUDA_NORM_ROWS (PST_CUDA_BLOCK / PST_CUDA_NORM_COLS)

/* y or, with g, the gradient of x. w, b: NULL if absent. stats: mean and rstd
 * of each row, alternating. */
struct pst_cuda_norm {
    const float *x, *w, *b, *g;
    float *y;           /* NULL: only statistics */
    float *mean, *rstd; /* of row r at r * step; NULL: not kept */
    int64_t rows, n, step;
    float eps;
    uint32_t centre;
};

/* Sums over rows of g (x - mean) rstd and of g. First each chunk of rows:
 * partial (chunks, 2, n); then all chunks: dw, db. */
struct pst_cuda_norm_affine {
    const float *g, *x, *stats; /* stats: mean and rstd, alternating */
    float *partial, *dw, *db;   /* db: NULL if absent */
    int64_t rows, n, chunk;     /* chunk: rows of each, but the last */
    uint32_t chunks;
    uint32_t accumulate; /* dw += */
};

#endif
