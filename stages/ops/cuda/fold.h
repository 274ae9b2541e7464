// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_FOLD_H
#define PENSTOCK_STAGES_OPS_CUDA_FOLD_H
/* How folds (code/fold.h) are run. */
#include "stages/ops/cuda/code/fold.h"
#include "stages/ops/cuda/launch.h"

/* The kernels of what is folded: for rows by warps and blocks, for columns; for
 * the splits. */
struct pst_cuda_folding {
    enum pst_cuda_fn fn[3], splits;
};
#define PST_CUDA_FOLDING(name, suffix)                                         \
    {                                                                          \
        {PST_FN_##name##_warp_##suffix, PST_FN_##name##_block_##suffix,        \
         PST_FN_##name##_columns_##suffix},                                    \
            PST_FN_##name##_splits_##suffix                                    \
    }

/* Sets how the work is divided; returns the bytes of scratch. */
size_t pst_cuda_fold_scratch(struct pst_cuda_fold *p);
/* Divides the work and enqueues it; c->scratch has these bytes. */
void pst_cuda_fold_run(const struct pst_call *c,
                       const struct pst_cuda_folding *f,
                       struct pst_cuda_fold *p);

#endif
