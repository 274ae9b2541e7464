// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_CONVERT_H
#define PENSTOCK_STAGES_OPS_SIMD_CONVERT_H
#include "stages/ops/simd/simd.h"

/* f32 to bf16, half to even, a NaN stays one; and back, which is exact. */
typedef void (*pst_to_bf16_fn)(int64_t n, const float *x, uint16_t *y);
typedef void (*pst_from_bf16_fn)(int64_t n, const uint16_t *x, float *y);
/* To bf16 and back. */
typedef void (*pst_round_bf16_fn)(int64_t n, const float *x, float *y);
PST_SIMD_DECL(void, pst_simd_round_bf16, (int64_t n, const float *x, float *y));
PST_SIMD_DECL(void, pst_simd_to_bf16, (int64_t n, const float *x, uint16_t *y));
PST_SIMD_DECL(void, pst_simd_from_bf16,
              (int64_t n, const uint16_t *x, float *y));

/* For the instruction set at hand. */
pst_to_bf16_fn pst_simd_to_bf16_best(enum pst_isa isa);
pst_from_bf16_fn pst_simd_from_bf16_best(enum pst_isa isa);
pst_round_bf16_fn pst_simd_round_bf16_best(enum pst_isa isa);

#endif
