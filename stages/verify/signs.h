// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_SIGNS_H
#define PENSTOCK_STAGES_VERIFY_SIGNS_H
/* Random signs for the elements of a tensor. Drawing a random number per
 * element would take longer than the model itself. Any thread. */
#include "stages/base/rng.h"
#include "stages/base/str.h"

static inline uint64_t pst_signs_of(const struct pst_rng_key *key)
{
    return pst_hash(key, sizeof(*key), 0);
}

/* Returns 1 or -1. */
static inline double pst_sign_at(uint64_t signs, uint64_t element)
{
    uint64_t x = (signs ^ element) * 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (x >> 63) != 0 ? 1.0 : -1.0;
}

#endif
