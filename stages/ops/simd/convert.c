// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/convert.h"

#include <string.h>

/* The carry of the rounding may run into the exponent: that is how the largest
 * finite numbers become infinite. */
void PST_SIMD(pst_simd_to_bf16)(int64_t n, const float *restrict x,
                                uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u, nan;

        memcpy(&u, &x[i], sizeof(u));
        nan = (u & 0x7fffffffu) > 0x7f800000u ? 1 : 0;
        y[i] = (uint16_t)((nan ? u | 0x400000u : u + 0x7fff + (u >> 16 & 1)) >>
                          16);
    }
}

/* Bits are set and cleared where they lie, so that a row stays f32. */
void PST_SIMD(pst_simd_round_bf16)(int64_t n, const float *restrict x,
                                   float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u, nan;

        memcpy(&u, &x[i], sizeof(u));
        nan = (u & 0x7fffffffu) > 0x7f800000u ? 1 : 0;
        u = (nan ? u | 0x400000u : u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
        memcpy(&y[i], &u, sizeof(u));
    }
}

void PST_SIMD(pst_simd_from_bf16)(int64_t n, const uint16_t *restrict x,
                                  float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)x[i] << 16;

        memcpy(&y[i], &u, sizeof(u));
    }
}
