// SPDX-License-Identifier: Apache-2.0
#include "stages/base/rng.h"

#include <math.h>

#define ROUNDS 10

/* Multipliers and Weyl constants of the paper, table 2. */
#define MUL_0  0xD2511F53u
#define MUL_1  0xCD9E8D57u
#define WEYL_0 0x9E3779B9u
#define WEYL_1 0xBB67AE85u

void pst_rng_philox(const uint32_t counter[4], const uint32_t key[2],
                    uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1];
    uint32_t c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t p0 = (uint64_t)MUL_0 * c0;
        const uint64_t p1 = (uint64_t)MUL_1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/*
 * The key (seed, step, microbatch, node) and i have 256 bits; a Philox key and
 * counter have only 192. So the stream is one block computed under the seed:
 * half of it is the key, half is the upper part of the counter, whose lower
 * part is i.
 */
void pst_rng_stream(const struct pst_rng_key *key, uint32_t stream[4])
{
    const uint32_t seed[2] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32)};
    const uint32_t place[4] = {(uint32_t)key->step, (uint32_t)(key->step >> 32),
                               key->microbatch, key->node};

    pst_rng_philox(place, seed, stream);
}

static void block_of(const uint32_t stream[4], uint64_t i, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), stream[2],
                                 stream[3]};

    pst_rng_philox(counter, stream, out);
}

void pst_rng_block(const struct pst_rng_key *key, uint64_t i, uint32_t out[4])
{
    uint32_t stream[4];

    pst_rng_stream(key, stream);
    block_of(stream, i, out);
}

float pst_rng_f32(const struct pst_rng_key *key, uint64_t i)
{
    uint32_t words[4];

    pst_rng_block(key, i / 4, words);
    return (float)(words[i % 4] >> 8) * 0x1p-24f;
}

double pst_rng_f64_of(const uint32_t stream[4], uint64_t i)
{
    const unsigned half = i % 2 * 2;
    uint32_t w[4];

    block_of(stream, i / 2, w);
    return (double)((((uint64_t)w[half] << 32) | w[half + 1]) >> 11) * 0x1p-53;
}

double pst_rng_f64(const struct pst_rng_key *key, uint64_t i)
{
    uint32_t stream[4];

    pst_rng_stream(key, stream);
    return pst_rng_f64_of(stream, i);
}

double pst_rng_normal_of(const uint32_t stream[4], uint64_t i)
{
    uint32_t w[4];
    double u, v;

    block_of(stream, i, w);
    /* u in (0, 1], so that its logarithm is finite; v in [0, 1). */
    u = ((double)((((uint64_t)w[0] << 32) | w[1]) >> 11) + 1.0) * 0x1p-53;
    v = (double)((((uint64_t)w[2] << 32) | w[3]) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v);
}

double pst_rng_normal(const struct pst_rng_key *key, uint64_t i)
{
    uint32_t stream[4];

    pst_rng_stream(key, stream);
    return pst_rng_normal_of(stream, i);
}
