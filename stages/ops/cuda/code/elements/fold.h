// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FOLD_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FOLD_H
/* Parameters of fold.cu: reductions. */
#include "stages/ops/cuda/code/params.h"

enum pst_cuda_folds {
#define FOLD(name, start, next, join) PST_CUDA_FOLD_##name,
#include "stages/ops/cpu/simd/fold.def"
#undef FOLD
    PST_CUDA_FOLD_NONE,
};

/* How a result is computed from the results of one or two passes. */
enum pst_cuda_fold_end {
    PST_CUDA_END_FIRST, /* the result of the only pass */
    PST_CUDA_END_MEAN,
    PST_CUDA_END_ROOT,
    PST_CUDA_END_VAR, /* two passes */
    PST_CUDA_END_LOGSUMEXP,
    PST_CUDA_END_NORM, /* mean, 1 / sqrt(variance + correction), variance */
};

enum pst_cuda_fold_step {
    PST_CUDA_FOLD_ALL, /* both passes and the end */
    PST_CUDA_FOLD_FIRST,
    PST_CUDA_FOLD_SECOND,
};

/* Threads of a block that fold different elements of the same results, in
 * kernels for columns. */
#define PST_CUDA_FOLD_ROWS    8
#define PST_CUDA_FOLD_COLUMNS (PST_CUDA_BLOCK / PST_CUDA_FOLD_ROWS)

/* Bytes of each partial result, in all kernels. */
#define PST_CUDA_FOLD_PARTIAL 16

/*
 * Folds the elements of each result o to y[o]. Element i of result o is at
 * offset(kept, o) + offset(gone, i) of x. If there are several splits, split s
 * folds elements from s * per_split on to partial[s][o], which are joined then.
 */
struct pst_cuda_fold {
    struct pst_cuda_nd kept, gone;
    const void *x;
    void *y;         /* NULL: only `places` is written */
    int64_t *places; /* index of the first extremum */
    void *partial;
    /* results of the first pass, and the number m for the second one
     * (reduce/ends.h); only if there are several splits */
    double *first, *m;
    int64_t per_split;
    uint32_t splits;
    uint32_t step;           /* enum pst_cuda_fold_step */
    uint32_t fold, second;   /* enum pst_cuda_folds */
    uint32_t end;            /* enum pst_cuda_fold_end */
    uint32_t x_type, y_type; /* enum pst_cuda_type; ignored by kernels for f32
                              * and f64 */
    uint32_t truth;          /* elements count as x != 0 */
    uint32_t accumulate;     /* true: results are added to y */
    uint32_t largest; /* kernels with places: true for max, false for min */
    double correction;
    void *also[2]; /* further results of the same type as y */
    /* For gradients of norms: g has the layout of x, the statistics are those
     * of `groups` groups of channels in each block, the results are (blocks,
     * channels). */
    const void *g, *mean, *rstd;
    uint32_t channels, groups;
};

#endif
