// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/reduce.h"

#include "stages/ops/simd/lanes.h"

/* Elements whose sum is taken in float: short enough that the error of a lane
 * (16 additions) stays below that of the total. */
#define BLOCK 512

double PST_SIMD(pst_simd_sum)(int64_t n, const float *x)
{
    double total = 0.0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *block = x + at;
        float sum = 0.0f;

        PST_LANES_SUM(sum, m, block[i]);
        total += (double)sum;
    }
    return total;
}
