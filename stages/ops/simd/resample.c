// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pool/resample.h"

void PST_SIMD(pst_simd_axpy)(int64_t n, float a, const float *x, float *y)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}
