// SPDX-License-Identifier: Apache-2.0
/* accumulate_grad: to += from. */
#include "stages/ops/cuda/code/device.cuh"
#include "stages/ops/cuda/code/elements/grad.h"

template <typename T>
PST_DEVICE void accumulate_grad(const struct pst_cuda_accumulate &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        ((T *)p.to)[pst_nd_at(p.nd, 0, i)] +=
            ((const T *)p.from)[pst_nd_at(p.nd, 1, i)];
    }
}

PST_CUDA_KERNEL(pst_grad_accumulate_f32, struct pst_cuda_accumulate)
{
    accumulate_grad<float>(p);
}

PST_CUDA_KERNEL(pst_grad_accumulate_f64, struct pst_cuda_accumulate)
{
    accumulate_grad<double>(p);
}

/* Four elements a thread; the last n % 4 by the first threads. */
PST_CUDA_KERNEL(pst_grad_accumulate_dense_f32, struct pst_cuda_accumulate_dense)
{
    float4 *const to = (float4 *)p.to;
    const float4 *const from = (const float4 *)p.from;

    PST_GRID_LOOP(i, p.n / 4)
    {
        const float4 x = from[i];
        float4 y = to[i];

        y.x += x.x;
        y.y += x.y;
        y.z += x.z;
        y.w += x.w;
        to[i] = y;
    }
    if (blockIdx.x == 0 && threadIdx.x < p.n % 4) {
        const int64_t i = p.n / 4 * 4 + threadIdx.x;

        ((float *)p.to)[i] += ((const float *)p.from)[i];
    }
}
