// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_CONVERT_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_CONVERT_H
#include "stages/ops/cpu/simd/simd.h"

static inline bool pst_simd_is_16(enum pst_dtype dtype)
{
    return dtype == PST_BF16 || dtype == PST_F16;
}

/* Convert f32 to a 16-bit float (round half to even, NaN stays NaN), and back,
 * which is exact. The bits equal those of pst_store_f64 and pst_load_f64. */
typedef void (*pst_to_16_fn)(int64_t n, const float *x, uint16_t *y);
typedef void (*pst_from_16_fn)(int64_t n, const uint16_t *x, float *y);
/* Rounds to bf16 and converts back. */
typedef void (*pst_round_bf16_fn)(int64_t n, const float *x, float *y);
PST_SIMD_DECL(void, pst_simd_round_bf16, (int64_t n, const float *x, float *y));
PST_SIMD_DECL(void, pst_simd_to_bf16, (int64_t n, const float *x, uint16_t *y));
PST_SIMD_DECL(void, pst_simd_from_bf16,
              (int64_t n, const uint16_t *x, float *y));
PST_SIMD_DECL(void, pst_simd_to_f16, (int64_t n, const float *x, uint16_t *y));
PST_SIMD_DECL(void, pst_simd_from_f16,
              (int64_t n, const uint16_t *x, float *y));

/* Return the function for an instruction set and a 16-bit dtype. */
pst_to_16_fn pst_simd_to_16_best(enum pst_dtype dtype, enum pst_isa isa);
pst_from_16_fn pst_simd_from_16_best(enum pst_dtype dtype, enum pst_isa isa);
pst_round_bf16_fn pst_simd_round_bf16_best(enum pst_isa isa);

#endif
