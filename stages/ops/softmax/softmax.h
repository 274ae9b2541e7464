// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SOFTMAX_SOFTMAX_H
#define PENSTOCK_STAGES_OPS_SOFTMAX_SOFTMAX_H
/* Loops over contiguous f32 rows of n (simd/layers/softmax.c). y may be x, dx
 * may be g or y. */
#include "stages/ops/simd/simd.h"

#define PST_SOFTMAX_COLS 64

struct pst_softmax_loops {
    void (*softmax)(int64_t rows, int64_t n, const float *x, float *y);
    void (*log_softmax)(int64_t rows, int64_t n, const float *x, float *y);
    /* dx = y (g - sum(g y)), y = softmax(x) */
    void (*softmax_grad)(int64_t rows, int64_t n, const float *g,
                         const float *y, float *dx);
    /* dx = g - e^y sum(g), y = log_softmax(x) */
    void (*log_softmax_grad)(int64_t rows, int64_t n, const float *g,
                             const float *y, float *dx);
    /* The same down columns: n rows, stride apart, of cols <= PST_SOFTMAX_COLS
     * numbers each. */
    void (*columns)(int64_t n, int64_t cols, int64_t stride, bool log,
                    const float *x, float *y);
    void (*columns_grad)(int64_t n, int64_t cols, int64_t stride, bool log,
                         const float *g, const float *y, float *dx);
};
extern const struct pst_softmax_loops pst_softmax_loops_any,
    pst_softmax_loops_avx2, pst_softmax_loops_avx512;

#endif
