// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_FAULT_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_FAULT_CUH
#include "stages/ops/cuda/code/device.cuh"

/* Reports a fault with two numbers, unless another one came first. */
PST_DEVICE void pst_fault_set(const struct pst_cuda_fault &f, int64_t a,
                              int64_t b)
{
    if (f.words == nullptr || atomicCAS(&f.words->set, 0u, 1u) != 0u)
        return;
    f.words->code = f.code;
    f.words->site = f.site;
    f.words->microbatch = f.microbatch;
    f.words->numbers[0] = a;
    f.words->numbers[1] = b;
    f.words->numbers[2] = 0;
    f.words->numbers[3] = 0;
}

/* Returns element i of indices that are i64 (wide) or i32. */
PST_DEVICE int64_t pst_index_at(const void *at, uint32_t wide, int64_t i)
{
    return wide ? ((const int64_t *)at)[i] : ((const int32_t *)at)[i];
}

#endif
