// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_MATH_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_MATH_CUH
/* The functions of one element that loops.def uses, from CUDA's library, under
 * the names that they have on CPUs (stages/ops/cpu/simd/vecmath.h, special.h).
 */
#include "stages/ops/cuda/code/device.cuh"

PST_DEVICE float pst_vm_select(int cond, float a, float b)
{
    return cond ? a : b;
}

PST_DEVICE int32_t pst_vm_bits(float x)
{
    return (int32_t)__float_as_uint(x);
}

#define PST_VM_ALIAS(name, function)                                           \
    PST_DEVICE float pst_vm_##name(float x)                                    \
    {                                                                          \
        return function(x);                                                    \
    }
PST_VM_ALIAS(exp, expf)
PST_VM_ALIAS(exp_small, expf)
PST_VM_ALIAS(exp2, exp2f)
PST_VM_ALIAS(expm1, expm1f)
PST_VM_ALIAS(log, logf)
PST_VM_ALIAS(log2, log2f)
PST_VM_ALIAS(log10, log10f)
PST_VM_ALIAS(log1p, log1pf)
PST_VM_ALIAS(tanh, tanhf)
PST_VM_ALIAS(erf, erff)
PST_VM_ALIAS(erfinv, erfinvf)
PST_VM_ALIAS(sinh, sinhf)
PST_VM_ALIAS(cosh, coshf)
PST_VM_ALIAS(atan, atanf)
PST_VM_ALIAS(atanh, atanhf)

PST_DEVICE float pst_vm_copysign(float x, float sign)
{
    return copysignf(x, sign);
}

PST_DEVICE float pst_vm_atan2(float y, float x)
{
    return atan2f(y, x);
}

PST_DEVICE float pst_vm_hypot(float a, float b)
{
    return hypotf(a, b);
}

PST_DEVICE float pst_vm_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

#define PST_VM_PI     3.14159265358979323846
#define PST_VM_LOG2_E 1.44269504088896340736

/* x log(y), 0 for x = 0 unless y is NaN. */
PST_DEVICE float pst_vm_x_log_y(float x, float y)
{
    return y != y ? y : x == 0.0f ? 0.0f : (float)((double)x * log((double)y));
}

/* Returns log(base^a + base^b) to this base. scale = log2(base), unit = 1 /
 * ln(base): for base e (PST_VM_LOG2_E, 1), for base 2 (1, PST_VM_LOG2_E), as on
 * CPUs. */
PST_DEVICE float pst_vm_log_add(float a, float b, double scale, double unit)
{
    const double high = a > b ? (double)a : (double)b;
    const double low = a > b ? (double)b : (double)a;

    if (a != a || b != b)
        return a + b;
    if (high == low && fabs(high) == (double)INFINITY)
        return a;
    return (float)(high + log1p(exp2((low - high) * scale)) * unit);
}

PST_DEVICE float pst_vm_logit(float x)
{
    return (float)(log((double)x) - log1p(-(double)x));
}

/* psi(x): by the recurrence to x >= 10, then the asymptotic series; by
 * reflection for x < 0. Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18. */
PST_DEVICE double pst_math_digamma(double x)
{
    double sum = 0.0, r;

    if (x == 0.0)
        return copysign((double)INFINITY, -x);
    if (x < 0.0) {
        if (x == floor(x))
            return (double)NAN;
        return pst_math_digamma(1.0 - x) - PST_VM_PI / tan(PST_VM_PI * x);
    }
    for (; x < 10.0; x += 1.0)
        sum -= 1.0 / x;
    r = 1.0 / (x * x);
    return sum + log(x) - 0.5 / x -
           r * (1.0 / 12 -
                r * (1.0 / 120 -
                     r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132)))));
}

/* psi'(x), the only order that loops use: 6.4.6, 6.4.7, 6.4.12. */
PST_DEVICE double pst_math_polygamma(int order, double x)
{
    double sum = 0.0, r;

    (void)order;
    if (x == 0.0)
        return (double)INFINITY;
    if (x < 0.0) {
        const double s = PST_VM_PI / sin(PST_VM_PI * x);

        if (x == floor(x))
            return (double)INFINITY;
        return s * s - pst_math_polygamma(1, 1.0 - x);
    }
    for (; x < 10.0; x += 1.0)
        sum += 1.0 / (x * x);
    r = 1.0 / (x * x);
    return sum + 1.0 / x + 0.5 * r +
           r / x * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30))));
}

#undef PST_ALWAYS_INLINE
#define PST_ALWAYS_INLINE PST_INLINE_DEVICE
#include "stages/ops/cpu/simd/loop_math.h"

#endif
