// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_COLUMN_SUM_H
#define PENSTOCK_STAGES_OPS_MATMUL_COLUMN_SUM_H
#include "stages/ops/cpu/simd/simd.h"

/* y[0..cols-1] = (accumulate ? y : 0) + sum of `rows` rows of x, which are
 * `stride` numbers of f32 or f64 apart. */
typedef void (*pst_column_sum_fn)(int64_t rows, int64_t cols, int64_t stride,
                                  const void *x, void *y, bool accumulate);
PST_SIMD_DECL(void, pst_simd_column_sum,
              (int64_t rows, int64_t cols, int64_t stride, const void *x,
               void *y, bool accumulate));
PST_SIMD_DECL(void, pst_simd_column_sum_f64,
              (int64_t rows, int64_t cols, int64_t stride, const void *x,
               void *y, bool accumulate));

#endif
