// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_LAYERS_DROPOUT_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_LAYERS_DROPOUT_H
#include "stages/ops/cpu/simd/simd.h"

/*
 * y[i] = x[i] scale where random number first + i of the stream is at least
 * threshold (in units of 2^-24), else 0. first is a multiple of 4; y may be x.
 */
typedef void (*pst_dropout_fn)(int64_t n, int64_t first,
                               const uint32_t stream[4], uint32_t threshold,
                               float scale, const float *x, float *y);
PST_SIMD_DECL(void, pst_simd_dropout,
              (int64_t n, int64_t first, const uint32_t stream[4],
               uint32_t threshold, float scale, const float *x, float *y));
/* y[i] = pst_rng_f32 number first + i of the stream. */
typedef void (*pst_uniform_fn)(int64_t n, int64_t first,
                               const uint32_t stream[4], float *y);
PST_SIMD_DECL(void, pst_simd_uniform,
              (int64_t n, int64_t first, const uint32_t stream[4], float *y));

#endif
