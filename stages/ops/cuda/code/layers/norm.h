// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_NORM_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_NORM_H
/* Parameters of norm.cu: layer norm and RMS norm over contiguous rows of
 * n elements (stages/ops/norm/norm.h). Types (enum pst_cuda_type) are for
 * kernels of 16 bits. */
#include "stages/ops/cuda/code/params.h"

/* A thread block of the kernel that sums over rows has COLS columns and adds
 * ROWS rows at a time. */
#define PST_CUDA_NORM_COLS 32
#define PST_CUDA_NORM_ROWS (PST_CUDA_BLOCK / PST_CUDA_NORM_COLS)

/* Computes y or, if g is not NULL, the gradient of x, which goes to y. w, b:
 * NULL if absent. */
struct pst_cuda_norm {
    const void *x, *w, *b, *g;
    void *y;           /* NULL: only mean and rstd are computed */
    void *mean, *rstd; /* those of row r are at r * step; NULL: not kept */
    int64_t rows, n, step;
    float eps;
    uint32_t centre;
    uint32_t type;       /* that of x, w, b, g and y (enum pst_cuda_type) */
    uint32_t stats_type; /* that of mean and rstd */
};

/* Sums over rows: dw of g (x - mean) rstd, db of g. A first kernel sums each
 * chunk of rows to partial (chunks, 2, n); a second one adds the chunks. */
struct pst_cuda_norm_affine {
    const void *g, *x;
    const float *stats; /* mean and rstd, alternating */
    float *partial;
    void *dw, *db;          /* db: NULL if absent */
    int64_t rows, n, chunk; /* chunk: rows of each chunk but the last */
    uint32_t chunks;
    uint32_t accumulate; /* true: sums are added to dw */
    uint32_t type;       /* that of g, x, dw and db */
};

#endif
