// SPDX-License-Identifier: Apache-2.0
/* Clipping of the global norm, as torch.nn.utils.clip_grad_norm_. */
#include "stages/ops/simd/simd.h"
#include "stages/optim/rows.h"

#define MAX_BLOCKS 1024

/* Blocks do not depend on the number of threads, nor does the order in which
 * their sums are added. */
struct sumsq {
    const struct pst_simd_ops *simd;
    const float *x;
    int64_t n, block, n_blocks;
    double sums[MAX_BLOCKS];
};

static void sumsq_part(void *ctx, unsigned part, unsigned parts)
{
    struct sumsq *s = ctx;
    int64_t begin, end;

    pst_pool_share(s->n_blocks, 1, part, parts, &begin, &end);
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * s->block;

        s->sums[b] = s->simd->sumsq(PST_MIN(s->block, s->n - at), s->x + at);
    }
}

double pst_sumsq(const float *x, int64_t n, enum pst_isa isa,
                 struct pst_pool *pool)
{
    const int64_t grains = (n + PST_OPTIM_GRAIN - 1) / PST_OPTIM_GRAIN;
    struct sumsq s = {.simd = pst_simd_best(isa), .x = x, .n = n};
    double sum = 0.0;

    if (n == 0)
        return 0.0;
    s.block = (grains + MAX_BLOCKS - 1) / MAX_BLOCKS * PST_OPTIM_GRAIN;
    s.n_blocks = (n + s.block - 1) / s.block;
    pst_pool_run(pool, sumsq_part, &s);
    for (int64_t b = 0; b < s.n_blocks; b++)
        sum += s.sums[b];
    return sum;
}

double pst_clip_scale(double norm, double max_norm)
{
    const double scale = max_norm / (norm + 1e-6);

    return scale > 1.0 ? 1.0 : scale; /* a NaN stays one, as in torch */
}
