// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pool/resample.h"

void PST_SIMD(pst_simd_axpy)(int64_t n, float a, const float *x, float *y)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static PST_ALWAYS_INLINE void max_tap(int64_t n, int64_t step,
                                      const float *restrict x, int32_t place,
                                      float *restrict best,
                                      int32_t *restrict at)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i * step];
        const bool take = (v > best[i]) | (v != v) | (at[i] < 0);

        best[i] = take ? v : best[i];
        at[i] = take ? place + (int32_t)(i * step) : at[i];
    }
}

void PST_SIMD(pst_simd_max_tap)(int64_t n, int64_t step, const float *x,
                                int32_t place, float *best, int32_t *at)
{
    if (step == 1)
        max_tap(n, 1, x, place, best, at);
    else if (step == 2)
        max_tap(n, 2, x, place, best, at);
    else
        max_tap(n, step, x, place, best, at);
}
