// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SOFTMAX_SOFTMAX_H
#define PENSTOCK_STAGES_OPS_SOFTMAX_SOFTMAX_H
/* Softmax and log softmax along one dimension. */
#include "stages/ops/core/op.h"
#include "stages/ops/cpu/simd/simd.h"

/* Layout of the reduced dimension: outer * inner runs of n elements, which are
 * `inner` apart. */
struct pst_softmax_runs {
    int64_t outer, n, inner;
};
struct pst_softmax_runs pst_softmax_runs_of(const struct pst_meta *x,
                                            int64_t dim);

/* Loops over contiguous rows of n elements, f32 or f64 (simd/layers/softmax.c).
 * y may be x, dx may be g or y. */

#define PST_SOFTMAX_COLS 64

struct pst_softmax_loops {
    void (*softmax)(int64_t rows, int64_t n, const void *x, void *y);
    void (*log_softmax)(int64_t rows, int64_t n, const void *x, void *y);
    /* dx = y (g - sum(g y)), y = softmax(x) */
    void (*softmax_grad)(int64_t rows, int64_t n, const void *g, const void *y,
                         void *dx);
    /* dx = g - e^y sum(g), y = log_softmax(x) */
    void (*log_softmax_grad)(int64_t rows, int64_t n, const void *g,
                             const void *y, void *dx);
    /* Do the same for cols <= PST_SOFTMAX_COLS adjacent columns of n numbers
     * each, whose rows are `stride` apart. */
    void (*columns)(int64_t n, int64_t cols, int64_t stride, bool log,
                    const void *x, void *y);
    void (*columns_grad)(int64_t n, int64_t cols, int64_t stride, bool log,
                         const void *g, const void *y, void *dx);
};
extern const struct pst_softmax_loops pst_softmax_loops_any,
    pst_softmax_loops_avx2, pst_softmax_loops_avx512, pst_softmax_loops_f64_any,
    pst_softmax_loops_f64_avx2, pst_softmax_loops_f64_avx512;

#endif
