// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/convert.h"

#include "stages/ops/cpu/simd/vecmath.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif
#include <string.h>

/* The carry of the rounding may run into the exponent, so the largest finite
 * numbers become infinite. */
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

/* Rounds within the 32 bits, so that elements stay f32. */
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

/* --- f16 ------------------------------------------------------------------ */

/* Returns yes ? a : b without branches; a compare of signed numbers suffices
 * for SSE2. */
static PST_ALWAYS_INLINE int32_t select_bits(int yes, int32_t a, int32_t b)
{
    return (a & -yes) | (b & (yes - 1));
}

/* A subnormal is the difference of two normal numbers: 2^-14 + m 2^-24 and
 * 2^-14. A NaN becomes a quiet one. */
static PST_ALWAYS_INLINE float from_f16(uint16_t h)
{
    const int32_t u = (h & 0x7fff) << 13, infinite = 0x7c00 << 13;
    const int32_t small = pst_vm_bits(pst_vm_float(u + (113 << 23)) - 0x1p-14f);
    const int32_t special = u | 0x7f800000 | (u > infinite) << 22;
    const int32_t y = select_bits(u < 1 << 23, small, u + (112 << 23));

    return pst_vm_float(select_bits(u >= infinite, special, y) |
                        (int32_t)((uint32_t)(h & 0x8000) << 16));
}

/* Converts to f16; in [1/2, 1/2 + 2^-14] floats are 2^-24 apart, as subnormals
 * of f16 are. */
static PST_ALWAYS_INLINE uint16_t to_f16(float x)
{
    const int32_t u = pst_vm_bits(x) & 0x7fffffff, infinite = 0x7f800000;
    const int32_t small = pst_vm_bits(pst_vm_float(u) + 0.5f) - 0x3f000000;
    const int32_t nan = 0x7e00 | (u >> 13 & 0x1ff);
    int32_t y = (u - (112 << 23) + 0xfff + (u >> 13 & 1)) >> 13;

    y = select_bits(u < 113 << 23, small, y);
    y = select_bits(u >= 143 << 23, select_bits(u > infinite, nan, 0x7c00), y);
    return (uint16_t)(y | (pst_vm_bits(x) >> 16 & 0x8000));
}

void PST_SIMD(pst_simd_to_f16)(int64_t n, const float *restrict x,
                               uint16_t *restrict y)
{
    int64_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(
            (void *)&y[i],
            _mm256_cvtps_ph(_mm256_loadu_ps(&x[i]), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = to_f16(x[i]);
}

void PST_SIMD(pst_simd_from_f16)(int64_t n, const uint16_t *restrict x,
                                 float *restrict y)
{
    int64_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(&y[i],
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)&x[i])));
#endif
    for (; i < n; i++)
        y[i] = from_f16(x[i]);
}
