// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_RNG_H
#define PENSTOCK_STAGES_BASE_RNG_H
/*
 * Counted random numbers: Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A number is a pure function of
 * (seed, step, microbatch, node, index): the same for every cut and schedule
 * and after a resume.
 */
#include <stdint.h>

struct pst_rng_key {
    uint64_t seed;
    uint64_t step;
    uint32_t microbatch;
    uint32_t node; /* id of the operator in the uncut graph */
};

/* Computes one block of the generator, with 10 rounds. */
void pst_rng_philox(const uint32_t counter[4], const uint32_t key[2],
                    uint32_t out[4]);
/* Derives the stream of a key: block i is philox of the counter (i, i >> 32,
 * stream[2], stream[3]) under the key (stream[0], stream[1]). */
void pst_rng_stream(const struct pst_rng_key *key, uint32_t stream[4]);
/* Computes block i of the stream: four independent 32-bit numbers. */
void pst_rng_block(const struct pst_rng_key *key, uint64_t i, uint32_t out[4]);
/* Returns number i in [0, 1), 24 random bits; uses word i%4 of block i/4. */
float pst_rng_f32(const struct pst_rng_key *key, uint64_t i);
/* Returns number i in [0, 1), 53 random bits; uses half of block i/2. */
double pst_rng_f64(const struct pst_rng_key *key, uint64_t i);
/* Returns number i, standard normal (Box-Muller on words of block i). */
double pst_rng_normal(const struct pst_rng_key *key, uint64_t i);
/* Return the same numbers from a stream that the caller has derived once
 * (pst_rng_stream), which is faster for many numbers. */
double pst_rng_f64_of(const uint32_t stream[4], uint64_t i);
double pst_rng_normal_of(const uint32_t stream[4], uint64_t i);

#endif
