// SPDX-License-Identifier: Apache-2.0
/* Elementwise loops without transcendental functions; y may be x, a or b. */
#include "stages/ops/simd/arith.h"

#include <math.h>

#define UNARY(name, formula)                                                   \
    void PST_SIMD(name)(int64_t n, const float *px, float *py)                 \
    {                                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                   \
        {                                                                      \
            const float x = px[i];                                             \
                                                                               \
            py[i] = (formula);                                                 \
        }                                                                      \
    }

/* dy is the gradient that arrives. */
#define BINARY(name, formula)                                                  \
    void PST_SIMD(name)(int64_t n, const float *pa, const float *pb,           \
                        float *py)                                             \
    {                                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                   \
        {                                                                      \
            const float dy = pa[i], x = pb[i];                                 \
                                                                               \
            py[i] = (formula);                                                 \
        }                                                                      \
    }

UNARY(pst_simd_neg, -x)
UNARY(pst_simd_abs, fabsf(x))
UNARY(pst_simd_reciprocal, 1.0f / x)
UNARY(pst_simd_sqrt, sqrtf(x))
UNARY(pst_simd_rsqrt, 1.0f / sqrtf(x))
UNARY(pst_simd_square, x *x)
UNARY(pst_simd_cube, x *x *x)
BINARY(pst_simd_square_grad, dy *(2.0f * x))
BINARY(pst_simd_cube_grad, dy *(3.0f * (x * x)))
