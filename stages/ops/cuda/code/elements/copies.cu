// SPDX-License-Identifier: Apache-2.0
/* Copies with conversion, and copies that add. */
#include "stages/ops/cuda/code/elements/elements.cuh"
#include "stages/ops/cuda/code/reals.cuh"

PST_DEVICE bool pst_cast_is_float(uint32_t type)
{
    return type <= PST_CUDA_F16;
}

/* Converts to an integer; a number out of range becomes INT64_MIN, as on x86.
 */
PST_DEVICE int64_t pst_cast_whole(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

PST_OUTLINE void pst_cast_store(uint32_t type, void *y, int64_t at, double x)
{
    switch (type) {
    case PST_CUDA_F32:
        ((float *)y)[at] = (float)x;
        break;
    case PST_CUDA_F64:
        ((double *)y)[at] = x;
        break;
    case PST_CUDA_BF16:
        ((uint16_t *)y)[at] = pst_to_bf16((float)x);
        break;
    case PST_CUDA_F16:
        ((uint16_t *)y)[at] = pst_to_f16((float)x);
        break;
    case PST_CUDA_BOOL:
        ((uint8_t *)y)[at] = x != 0.0;
        break;
    default:
        pst_store_whole(type, y, at, pst_cast_whole(x));
    }
}

PST_CUDA_KERNEL(pst_copy_cast, struct pst_cuda_cast)
{
    const bool real =
        pst_cast_is_float(p.from_type) || pst_cast_is_float(p.to_type);

    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t to = pst_nd_at(p.nd, 0, i), from = pst_nd_at(p.nd, 1, i);

        if (real) {
            double x = pst_load_double(p.from_type, p.from, from);

            if (p.accumulate)
                x += pst_load_double(p.to_type, p.to, to);
            pst_cast_store(p.to_type, p.to, to, x);
        } else {
            uint64_t x = (uint64_t)pst_load_whole(p.from_type, p.from, from);

            if (p.accumulate)
                x += (uint64_t)pst_load_whole(p.to_type, p.to, to);
            pst_store_whole(p.to_type, p.to, to, (int64_t)x);
        }
    }
}

/* Four adjacent elements; 16-bit ones are loaded and stored as one word. */
PST_DEVICE float4 pst_cast_load4(uint32_t type, const void *x, int64_t i)
{
    const float4 *const f32 = (const float4 *)x;
    uint64_t bits;
    float4 y;

    if (type == PST_CUDA_F32)
        return f32[i];
    bits = ((const uint64_t *)x)[i];
    y.x = pst_reals_16::of(type, (uint16_t)bits);
    y.y = pst_reals_16::of(type, (uint16_t)(bits >> 16));
    y.z = pst_reals_16::of(type, (uint16_t)(bits >> 32));
    y.w = pst_reals_16::of(type, (uint16_t)(bits >> 48));
    return y;
}

PST_DEVICE void pst_cast_store4(uint32_t type, void *y, int64_t i, float4 x)
{
    if (type == PST_CUDA_F32)
        ((float4 *)y)[i] = x;
    else
        ((uint64_t *)y)[i] = (uint64_t)pst_reals_16::bits(type, x.x) |
                             (uint64_t)pst_reals_16::bits(type, x.y) << 16 |
                             (uint64_t)pst_reals_16::bits(type, x.z) << 32 |
                             (uint64_t)pst_reals_16::bits(type, x.w) << 48;
}

/* Four elements a thread; the last n % 4 by the first threads. */
PST_CUDA_KERNEL(pst_copy_cast_dense, struct pst_cuda_cast_dense)
{
    PST_GRID_LOOP(i, p.n / 4)
    {
        pst_cast_store4(p.to_type, p.to, i,
                        pst_cast_load4(p.from_type, p.from, i));
    }
    if (blockIdx.x == 0 && threadIdx.x < p.n % 4) {
        const int64_t i = p.n / 4 * 4 + threadIdx.x;

        pst_reals_16::store(p.to_type, p.to, i,
                            pst_reals_16::load(p.from_type, p.from, i));
    }
}
