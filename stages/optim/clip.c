// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/simd.h"
#include "stages/optim/optim.h"

/* Blocks are summed one by one in this size whatever the number of threads,
 * so that the sum does not depend on it. */
#define BLOCK 65536

double pst_sumsq(const float *x, int64_t n, enum pst_isa isa,
                 struct pst_pool *pool)
{
    const struct pst_simd_ops *ops = pst_simd_best(isa);
    double sum = 0;

    (void)pool; /* bound by memory: a second thread gains little */
    for (int64_t i = 0; i < n; i += BLOCK)
        sum += ops->sumsq(PST_MIN(BLOCK, n - i), x + i);
    return sum;
}

double pst_clip_scale(double norm, double max_norm)
{
    double scale = max_norm / (norm + 1e-6);

    return scale < 1 ? scale : 1;
}
