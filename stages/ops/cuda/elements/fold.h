// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_FOLD_H
#define PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_FOLD_H
/* Launches of folds (code/elements/fold.h). */
#include "stages/ops/cuda/code/elements/fold.h"
#include "stages/ops/cuda/launch.h"

/* Kernels of one fold. fn: for rows by warps, rows by blocks, and columns;
 * splits: joins the partial results of splits. */
struct pst_cuda_folding {
    enum pst_cuda_fn fn[3], splits;
};
#define PST_CUDA_FOLDING(name, suffix)                                         \
    {                                                                          \
        {PST_FN_##name##_warp_##suffix, PST_FN_##name##_block_##suffix,        \
         PST_FN_##name##_columns_##suffix},                                    \
            PST_FN_##name##_splits_##suffix                                    \
    }

/* Divides the work and sets p's members for it; returns the bytes of
 * scratch. */
size_t pst_cuda_fold_scratch(struct pst_cuda_fold *p);
/* Divides the work and enqueues it; c->scratch has the bytes that
 * pst_cuda_fold_scratch returns. */
void pst_cuda_fold_run(const struct pst_call *c,
                       const struct pst_cuda_folding *f,
                       struct pst_cuda_fold *p);

/* Run column_sum of bf16 or f16 as a fold. */
size_t pst_cuda_columns_scratch(const struct pst_call *c, unsigned threads);
void pst_cuda_columns_run(const struct pst_call *c);

#endif
