// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_REALS_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_REALS_CUH
/*
 * Floating elements of kernels that exist for several dtypes. A class says what
 * they are computed in (number), and how element i is loaded, stored and
 * rounded. pst_reals_16 computes in f32; `type` (enum pst_cuda_type) says
 * whether an operand is bf16, f16 or f32. The other classes ignore it.
 */
#include "stages/ops/cuda/code/device.cuh"

template <typename T> struct pst_reals {
    typedef T number;

    PST_DEVICE T load(uint32_t, const void *x, int64_t i)
    {
        return ((const T *)x)[i];
    }

    PST_DEVICE void store(uint32_t, void *y, int64_t i, T x)
    {
        ((T *)y)[i] = x;
    }

    PST_DEVICE T round(uint32_t, T x)
    {
        return x;
    }
};

typedef struct pst_reals<float> pst_reals_f32;
typedef struct pst_reals<double> pst_reals_f64;

struct pst_reals_16 {
    typedef float number;

    /* Convert from and to the bits of bf16 or f16. */
    PST_DEVICE float of(uint32_t type, uint16_t x)
    {
        return type == PST_CUDA_BF16 ? pst_from_bf16(x) : pst_from_f16(x);
    }

    PST_DEVICE uint16_t bits(uint32_t type, float x)
    {
        return type == PST_CUDA_BF16 ? pst_to_bf16(x) : pst_to_f16(x);
    }

    PST_DEVICE float load(uint32_t type, const void *x, int64_t i)
    {
        return type == PST_CUDA_F32 ? ((const float *)x)[i]
                                    : of(type, ((const uint16_t *)x)[i]);
    }

    PST_DEVICE void store(uint32_t type, void *y, int64_t i, float x)
    {
        if (type == PST_CUDA_F32)
            ((float *)y)[i] = x;
        else
            ((uint16_t *)y)[i] = bits(type, x);
    }

    PST_DEVICE float round(uint32_t type, float x)
    {
        return type == PST_CUDA_F32 ? x : of(type, bits(type, x));
    }
};

/* Stores x, or adds it, rounded to the element's type, to the element. */
template <class E>
PST_DEVICE void pst_real_put(uint32_t type, void *y, int64_t i,
                             typename E::number x, bool accumulate)
{
    E::store(type, y, i,
             accumulate ? E::load(type, y, i) + E::round(type, x) : x);
}

#endif
