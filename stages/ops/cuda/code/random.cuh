// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_RANDOM_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_RANDOM_CUH
/* The counted random numbers of stages/base/rng.h. */
#include "stages/ops/cuda/code/device.cuh"

/* Returns word i % 4 of block i / 4 of Philox4x32-10. */
PST_DEVICE uint32_t pst_random_word(const uint32_t *stream, uint64_t i)
{
    uint32_t c0 = (uint32_t)(i / 4), c1 = (uint32_t)(i / 4 >> 32);
    uint32_t c2 = stream[2], c3 = stream[3];
    uint32_t k0 = stream[0], k1 = stream[1];

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return i % 4 == 0 ? c0 : i % 4 == 1 ? c1 : i % 4 == 2 ? c2 : c3;
}

/* Returns the factor of element i: 0 if it is dropped. */
PST_DEVICE float pst_random_keep(const struct pst_cuda_chance &c, uint64_t i)
{
    if (c.limit == 0)
        return 1.0f;
    return pst_random_word(c.stream, i) >> 8 < c.limit ? 0.0f : c.kept;
}

#endif
