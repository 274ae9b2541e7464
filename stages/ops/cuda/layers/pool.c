// SPDX-License-Identifier: Apache-2.0
/* Max pools; their gradients are scatter_add. */
#include "stages/ops/pool/max.h"

#include <limits.h>

#include "stages/ops/cuda/code/layers/pool.h"
#include "stages/ops/cuda/kernels.h"

static void run(const struct pst_call *c, bool adaptive)
{
    const struct pst_max_pool m = pst_max_pool_of(c);
    struct pst_cuda_max_pool p = {.x = c->in[0].data,
                                  .y = c->out[0].data,
                                  .at = c->out[1].data,
                                  .n = pst_meta_numel(c->out[0].meta),
                                  .adaptive = adaptive};

    for (unsigned d = 0; d < PST_SPACE; d++) {
        struct pst_max_taps t = {1, 1, 0, 1};

        if (!adaptive && d + m.dims >= PST_SPACE)
            pst_max_pool_taps(&m, d + m.dims - PST_SPACE, &t);
        p.in[d] = (int32_t)m.in[d];
        p.out[d] = (int32_t)m.out[d];
        p.size[d] = (int32_t)t.size;
        p.stride[d] = (int32_t)t.stride;
        p.pad[d] = (int32_t)t.pad;
        p.dil[d] = (int32_t)t.dil;
    }
    pst_cuda_launch_n(c->stream, PST_FN_pst_max_pool_f32, p.n, &p);
}

static void pool_run(const struct pst_call *c)
{
    run(c, false);
}

static void adaptive_run(const struct pst_call *c)
{
    run(c, true);
}

/* True if 32 bits suffice to number the positions of a plane with its
 * padding. */
static bool supports(const struct pst_call *c)
{
    const struct pst_max_pool m = pst_max_pool_of(c);

    return m.in[0] * m.in[1] * m.in[2] < INT_MAX / 8 &&
           m.out[0] * m.out[1] * m.out[2] < INT_MAX / 8;
}

static bool pool_supports(const struct pst_call *c)
{
    const struct pst_max_pool m = pst_max_pool_of(c);

    for (unsigned d = 0; d < m.dims; d++) {
        struct pst_max_taps t;

        pst_max_pool_taps(&m, d, &t);
        if (t.size > INT16_MAX || t.dil > INT16_MAX || t.pad > INT16_MAX ||
            t.stride * m.out[PST_SPACE - m.dims + d] > INT_MAX / 8)
            return false;
    }
    return supports(c);
}

static const struct pst_kernel pool_kernels[] = {
    {"max_pool_cuda_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED, pool_supports,
     NULL, pool_run, 0.0},
};
PST_CUDA_KERNELS(max_pool, pool_kernels);

static const struct pst_kernel adaptive_kernels[] = {
    {"adaptive_max_pool_cuda_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED,
     supports, NULL, adaptive_run, 0.0},
};
PST_CUDA_KERNELS(adaptive_max_pool, adaptive_kernels);
