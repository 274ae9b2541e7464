// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_RANDOM_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_RANDOM_CUH
/* The counted random numbers of stages/base/rng.h. */
#include "stages/ops/cuda/code/device.cuh"

struct pst_random_block {
    uint32_t words[4];
};

/* Computes a block of Philox4x32-10 of counter c under the key (k0, k1). */
PST_DEVICE pst_random_block pst_random_philox(uint32_t c0, uint32_t c1,
                                              uint32_t c2, uint32_t c3,
                                              uint32_t k0, uint32_t k1)
{
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
    return {{c0, c1, c2, c3}};
}

/* Returns block i of a stream. */
PST_DEVICE pst_random_block pst_random_block_of(const uint32_t *stream,
                                                uint64_t i)
{
    return pst_random_philox((uint32_t)i, (uint32_t)(i >> 32), stream[2],
                             stream[3], stream[0], stream[1]);
}

/* Returns word i % 4 of block i / 4 of a stream. */
PST_DEVICE uint32_t pst_random_word(const uint32_t *stream, uint64_t i)
{
    const pst_random_block b = pst_random_block_of(stream, i / 4);

    return i % 4 == 0   ? b.words[0]
           : i % 4 == 1 ? b.words[1]
           : i % 4 == 2 ? b.words[2]
                        : b.words[3];
}

/* Returns the factor of element i: 0 if it is dropped. */
PST_DEVICE float pst_random_keep(const struct pst_cuda_chance &c, uint64_t i)
{
    if (c.limit == 0)
        return 1.0f;
    return pst_random_word(c.stream, i) >> 8 < c.limit ? 0.0f : c.kept;
}

#endif
