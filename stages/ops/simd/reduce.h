// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_REDUCE_H
#define PENSTOCK_STAGES_OPS_SIMD_REDUCE_H
#include "stages/ops/simd/simd.h"

/* Sum of n floats: blocks in float with fixed lanes, their sums in double. */
typedef double (*pst_sum_fn)(int64_t n, const float *x);
PST_SIMD_DECL(double, pst_simd_sum, (int64_t n, const float *x));

#endif
