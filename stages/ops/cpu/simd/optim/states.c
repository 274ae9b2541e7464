// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/optim/states.h"

#include <string.h>

#define INFINITE 0x7F800000u
#define QUIET    0x00400000u /* keeps a NaN a NaN when bits are cut off */
#define AT_ONCE  256

static inline uint32_t bits_of(float x)
{
    uint32_t ret;

    memcpy(&ret, &x, sizeof(ret));
    return ret;
}

static void round_to_bf16(int64_t n, const float *restrict x,
                          const float *restrict u, uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(x[i]);
        const uint32_t up = bits + (uint32_t)(int32_t)(u[i] * 0x1p16f);
        const bool is_nan = (bits & ~0x80000000u) > INFINITE;
        const bool overflows = (up & INFINITE) == INFINITE;
        const uint32_t cut = bits | (is_nan ? QUIET : 0);

        y[i] = (uint16_t)((overflows || is_nan ? cut : up) >> 16);
    }
}

/* Compares bits: those of absolute values are ordered like the values. */
static float most_of(int64_t n, const float *x)
{
    uint32_t most = 0;
    float ret;

    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(x[i]) & ~0x80000000u;

        most = bits > most ? bits : most;
    }
    memcpy(&ret, &most, sizeof(ret));
    return ret;
}

/* A binary search for all elements at once: each step is one loop over
 * the elements. */
static void find_codes(int64_t n, const float *restrict x, float scale,
                       const float between[restrict 255], bool is_signed,
                       uint8_t *restrict y)
{
    const int32_t least = is_signed ? 0 : 1;
    int32_t code[AT_ONCE] = {0};
    float share[AT_ONCE];

    for (int64_t i = 0; i < n; i++)
        share[i] = x[i] / scale;
    for (int32_t step = 128; step > 0; step /= 2)
        for (int64_t i = 0; i < n; i++)
            code[i] += between[code[i] + step - 1] < share[i] ? step : 0;
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint8_t)(code[i] < least && x[i] > 0 ? least : code[i]);
}

static void find_values(int64_t n, const uint8_t *restrict x, float scale,
                        const float map[restrict 256], float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = map[x[i]] * scale;
}

const struct pst_simd_states PST_SIMD(pst_simd_states) = {
    .round = round_to_bf16,
    .most = most_of,
    .codes = find_codes,
    .values = find_values,
};
