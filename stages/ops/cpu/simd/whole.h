// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_WHOLE_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_WHOLE_H
/* Sums of bool (bytes of 0 and 1) and of i64, which wraps around. */
#include "stages/ops/cpu/simd/simd.h"

struct pst_simd_whole {
    int64_t (*sum_bool)(int64_t n, const uint8_t *x);
    int64_t (*sum_i64)(int64_t n, const int64_t *x);
    /* y[j] = sum over rows, `stride` apart, of x[j] for j < cols. */
    void (*columns_bool)(int64_t rows, int64_t cols, int64_t stride,
                         const uint8_t *x, int64_t *y);
    void (*columns_i64)(int64_t rows, int64_t cols, int64_t stride,
                        const int64_t *x, int64_t *y);
};

extern const struct pst_simd_whole pst_simd_whole_any, pst_simd_whole_avx2,
    pst_simd_whole_avx512;
const struct pst_simd_whole *pst_simd_whole_best(enum pst_isa isa);

#endif
