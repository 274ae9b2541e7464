// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_REAL_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_REAL_H
/*
 * Number type of a source: f32; sources listed in meson.build are also compiled
 * with PST_REAL_F64 for f64. They define PST_SIMD_REAL(name): name_avx2, for
 * example, and name_f64_avx2.
 */
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/cpu/simd/vecmath.h"

#include <math.h>

#ifdef PST_REAL_F64

typedef double pst_real;
#define PST_SIMD_REAL(name) PST_SIMD(name##_f64)

static inline pst_real pst_real_sqrt(pst_real x)
{
    return sqrt(x);
}

static inline pst_real pst_real_abs(pst_real x)
{
    return fabs(x);
}

static inline pst_real pst_real_log(pst_real x)
{
    return log(x);
}

/* e^x for x <= 0 (or slightly above by rounding), within 1 ulp: 0 below -708,
 * so that no result is subnormal; NaN is propagated. e^r is the series up to
 * r^13, |r| <= ln(2)/2. */
static PST_ALWAYS_INLINE pst_real pst_real_exp(pst_real x)
{
    static const double series[] = {1.0,
                                    1.0,
                                    1.0 / 2,
                                    1.0 / 6,
                                    1.0 / 24,
                                    1.0 / 120,
                                    1.0 / 720,
                                    1.0 / 5040,
                                    1.0 / 40320,
                                    1.0 / 362880,
                                    1.0 / 3628800,
                                    1.0 / 39916800,
                                    1.0 / 479001600,
                                    1.0 / 6227020800.0};
    /* 1.5 * 2^52: adding it rounds to an integer */
    const double magic = 6755399441055744.0;
    const double y = x > -708.0 || x != x ? x : -708.0;
    const double t = y * 1.44269504088896340736 + magic, k = t - magic;
    double r = y - k * 6.93147180369123816490e-1, p = series[13];
    uint64_t bits, power;

    r -= k * 1.90821492927058770002e-10;
#pragma GCC unroll 16
    for (int i = 12; i >= 0; i--)
        p = p * r + series[i];
    memcpy(&bits, &p, sizeof(bits));
    memcpy(&power, &t, sizeof(power));
    bits += power << 52;
    bits &= (uint64_t)(x < -708.0) - 1;
    memcpy(&p, &bits, sizeof(p));
    return p;
}

static PST_ALWAYS_INLINE pst_real pst_real_exp_neg(pst_real x)
{
    return pst_real_exp(x);
}

#else

typedef float pst_real;
#define PST_SIMD_REAL(name) PST_SIMD(name)

static inline pst_real pst_real_sqrt(pst_real x)
{
    return sqrtf(x);
}

static inline pst_real pst_real_abs(pst_real x)
{
    return fabsf(x);
}

static inline pst_real pst_real_log(pst_real x)
{
    return pst_vm_log(x);
}

static PST_ALWAYS_INLINE pst_real pst_real_exp(pst_real x)
{
    return pst_vm_exp(x);
}

static PST_ALWAYS_INLINE pst_real pst_real_exp_neg(pst_real x)
{
    return pst_vm_exp_neg(x);
}

#endif

#endif
