// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_ELEMENTS_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_ELEMENTS_CUH
/* Loads and stores elements of any type (enum pst_cuda_type). */
#include "stages/ops/cuda/code/device.cuh"

PST_OUTLINE int64_t pst_load_whole(uint32_t type, const void *x, int64_t i)
{
    switch (type) {
    case PST_CUDA_BOOL:
        return ((const uint8_t *)x)[i] != 0;
    case PST_CUDA_U8:
        return ((const uint8_t *)x)[i];
    case PST_CUDA_I8:
        return ((const int8_t *)x)[i];
    case PST_CUDA_I16:
        return ((const int16_t *)x)[i];
    case PST_CUDA_I32:
        return ((const int32_t *)x)[i];
    default:
        return ((const int64_t *)x)[i];
    }
}

PST_OUTLINE void pst_store_whole(uint32_t type, void *y, int64_t i, int64_t x)
{
    switch (type) {
    case PST_CUDA_BOOL:
        ((uint8_t *)y)[i] = x != 0;
        break;
    case PST_CUDA_U8:
        ((uint8_t *)y)[i] = (uint8_t)x;
        break;
    case PST_CUDA_I8:
        ((int8_t *)y)[i] = (int8_t)x;
        break;
    case PST_CUDA_I16:
        ((int16_t *)y)[i] = (int16_t)x;
        break;
    case PST_CUDA_I32:
        ((int32_t *)y)[i] = (int32_t)x;
        break;
    default:
        ((int64_t *)y)[i] = x;
    }
}

PST_OUTLINE double pst_load_double(uint32_t type, const void *x, int64_t i)
{
    switch (type) {
    case PST_CUDA_F32:
        return (double)((const float *)x)[i];
    case PST_CUDA_F64:
        return ((const double *)x)[i];
    case PST_CUDA_BF16:
        return (double)pst_from_bf16(((const uint16_t *)x)[i]);
    case PST_CUDA_F16:
        return (double)pst_from_f16(((const uint16_t *)x)[i]);
    default:
        return (double)pst_load_whole(type, x, i);
    }
}

#endif
