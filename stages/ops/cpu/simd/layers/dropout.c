// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/layers/dropout.h"

/* Number of blocks, of four random numbers each, that are computed at a time.
 */
#define LANES 32

/* Computes pst_rng_block for LANES blocks from `block` on, word by word:
 * out[k][j] is word k of block j. Uses the rounds and constants of base/rng.c.
 */
static inline void random_blocks(uint64_t block, const uint32_t stream[4],
                                 uint32_t out[4][LANES])
{
    uint32_t k0 = stream[0], k1 = stream[1];

    for (int j = 0; j < LANES; j++) {
        out[0][j] = (uint32_t)(block + (uint64_t)j);
        out[1][j] = (uint32_t)((block + (uint64_t)j) >> 32);
        out[2][j] = stream[2];
        out[3][j] = stream[3];
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < LANES; j++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * out[0][j];
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * out[2][j];

            out[0][j] = (uint32_t)(p1 >> 32) ^ out[1][j] ^ k0;
            out[1][j] = (uint32_t)p1;
            out[2][j] = (uint32_t)(p0 >> 32) ^ out[3][j] ^ k1;
            out[3][j] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void PST_SIMD(pst_simd_uniform)(int64_t n, int64_t first,
                                const uint32_t stream[4], float *y)
{
    uint32_t words[4][LANES];

    for (int64_t at = 0; at < n; at += 4 * LANES) {
        const int64_t m = n - at < 4 * LANES ? n - at : 4 * LANES;

        random_blocks((uint64_t)(first + at) / 4, stream, words);
        for (int64_t i = 0; i < m; i++)
            y[at + i] = (float)(words[i % 4][i / 4] >> 8) * 0x1p-24f;
    }
}

void PST_SIMD(pst_simd_dropout)(int64_t n, int64_t first,
                                const uint32_t stream[4], uint32_t threshold,
                                float scale, const float *x, float *y)
{
    uint32_t words[4][LANES];

    for (int64_t at = 0; at < n; at += 4 * LANES) {
        const int64_t m = n - at < 4 * LANES ? n - at : 4 * LANES;

        random_blocks((uint64_t)(first + at) / 4, stream, words);
        for (int64_t i = 0; i < m; i++)
            y[at + i] = words[i % 4][i / 4] >> 8 >= threshold
                            ? x[at + i] * scale
                            : 0.0f;
    }
}
