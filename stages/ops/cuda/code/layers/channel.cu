// SPDX-License-Identifier: Apache-2.0
/* Batch, group and instance norm: the kernels that run after the reductions of
 * elements/fold.cu (statistics of x, and sums for the gradients). */
#include "stages/ops/cuda/code/device.cuh"
#include "stages/ops/cuda/code/layers/channel.h"

/* Returns the weight or bias of channel c; `otherwise` if there is none. */
template <typename T>
PST_DEVICE T channel_number(const void *of, uint32_t c, T otherwise)
{
    return of != nullptr ? ((const T *)of)[c] : otherwise;
}

/* Computes the means of a w and b w over the channels of each group. */
template <typename T>
PST_DEVICE void channel_means(const struct pst_cuda_channels &p)
{
    const uint32_t each = p.c / p.groups;

    PST_GRID_LOOP(i, p.blocks * p.groups)
    {
        const uint32_t first = (uint32_t)i % p.groups * each;
        const int64_t row = i / p.groups * p.c;
        T a = 0, b = 0;

        for (uint32_t c = first; c < first + each; c++) {
            const T w = channel_number<T>(p.w, c, T(1));

            a += w * ((const T *)p.sum_a)[row + c];
            b += w * ((const T *)p.sum_b)[row + c];
        }
        ((T *)p.means)[2 * i] = a / (T)p.count;
        ((T *)p.means)[2 * i + 1] = b / (T)p.count;
    }
}

template <typename T>
PST_DEVICE void channel_apply(const struct pst_cuda_channels &p)
{
    const uint32_t images = p.n / p.blocks, each = p.c / p.groups;

    PST_GRID_LOOP(i, (int64_t)p.n * p.c * p.s)
    {
        const uint32_t row = (uint32_t)i / p.s; /* fewer than 2^31 elements */
        const uint32_t c = row % p.c;
        const uint32_t k = row / p.c / images * p.groups + c / each;
        const T w = channel_number<T>(p.w, c, T(1));
        const T rstd = ((const T *)p.rstd)[k];
        const T d = (((const T *)p.x)[i] - ((const T *)p.mean)[k]) * rstd;

        if (p.g == nullptr) {
            ((T *)p.y)[i] = d * w + channel_number<T>(p.b, c, T(0));
            continue;
        }
        const T g = ((const T *)p.g)[i] * w;
        const T *const means = (const T *)p.means;

        ((T *)p.y)[i] =
            rstd *
            (means != nullptr ? g - means[2 * k] - d * means[2 * k + 1] : g);
    }
}

PST_CUDA_KERNEL(pst_channel_means_f32, struct pst_cuda_channels)
{
    channel_means<float>(p);
}

PST_CUDA_KERNEL(pst_channel_means_f64, struct pst_cuda_channels)
{
    channel_means<double>(p);
}

PST_CUDA_KERNEL(pst_channel_apply_f32, struct pst_cuda_channels)
{
    channel_apply<float>(p);
}

PST_CUDA_KERNEL(pst_channel_apply_f64, struct pst_cuda_channels)
{
    channel_apply<double>(p);
}
