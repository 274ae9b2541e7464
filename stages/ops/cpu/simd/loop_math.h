// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_LOOP_MATH_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_LOOP_MATH_H
/*
 * Functions of one element that loops.def uses, besides those of vecmath.h.
 * Device code has functions of the same names instead of vecmath.h
 * (stages/ops/cuda/code/math.cuh).
 */
#ifndef __cplusplus
#include "stages/ops/cpu/simd/special.h"
#include "stages/ops/cpu/simd/vecmath.h"
#include "stages/ops/pointwise/special/special_math.h"
#endif

static PST_ALWAYS_INLINE float gelu(float x)
{
    return 0.5f * x * (1.0f + pst_vm_erf(x * 0.707106781f));
}

/* Returns the derivative of gelu: Phi(x) + x phi(x). */
static PST_ALWAYS_INLINE float gelu_slope(float x)
{
    /* Below e^-80 the product would be subnormal, which is slow. */
    const float q = x * x < 160.0f ? -0.5f * x * x : -80.0f;
    const float e = pst_vm_exp_small(q);
    const float density = q > -80.0f ? 0.398942280f * e : 0.0f;

    return 0.5f * (1.0f + pst_vm_erf(x * 0.707106781f)) + x * density;
}

#define GELU_A 0.797884561f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

/* Returns 2u, where (1 + tanh(u)) / 2 = sigmoid(2u). */
static PST_ALWAYS_INLINE float gelu_tanh_arg(float x)
{
    return 2.0f * GELU_A * (x + GELU_B * x * x * x);
}

static PST_ALWAYS_INLINE float gelu_tanh(float x)
{
    return x * pst_vm_sigmoid(gelu_tanh_arg(x));
}

/* Derivative of x s, where s = sigmoid(2u): s + x s (1 - s) d(2u)/dx. 1 - s is
 * computed as e s, which does not cancel. */
static PST_ALWAYS_INLINE float gelu_tanh_slope(float x)
{
    const float z = gelu_tanh_arg(x);
    const float e = pst_vm_exp_small(z < -87.0f ? 87.0f : -z);
    const float s = 1.0f / (1.0f + e);
    const float inner = 2.0f * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
    const float slope = s + x * inner * (e * s) * s;

    /* Infinities give NaN, as in PyTorch. */
    return pst_vm_select(z < -87.0f, 0.0f,
                         pst_vm_select(z > 87.0f, 1.0f, slope)) +
           0.0f * x;
}

static PST_ALWAYS_INLINE float silu_slope(float x)
{
    const float s = pst_vm_sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

/* x tanh(log(1 + e)) = x (e^2 + 2 e) / (e^2 + 2 e + 2) */
static PST_ALWAYS_INLINE float mish(float x)
{
    const float e = pst_vm_exp(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);

    return pst_vm_select(x > 20.0f, x, x * (n / (n + 2.0f)));
}

/* Clamps x to lo..hi: hi if lo > hi, NaN if x or a bound is NaN. */
static PST_ALWAYS_INLINE float vm_clamp(float x, float lo, float hi)
{
    const float y = x < lo || lo != lo ? lo : x;
    const float z = y > hi || hi != hi ? hi : y;

    return x != x ? x : z;
}

/* Huber loss of the distance d >= 0. */
static PST_ALWAYS_INLINE float huber(float d, float delta)
{
    return pst_vm_select(d < delta, 0.5f * d * d, delta * (d - 0.5f * delta));
}

static PST_ALWAYS_INLINE float smooth_l1(float d, float beta)
{
    return pst_vm_select(d < beta, 0.5f * d * d / beta, d - 0.5f * beta);
}

static PST_ALWAYS_INLINE float smooth_l1_slope(float d, float beta)
{
    const float sign = pst_vm_select(d != 0.0f, pst_vm_copysign(1.0f, d), d);

    return pst_vm_select(fabsf(d) >= beta, sign, d / beta) + 0.0f * d;
}

/* Binary cross entropy of the logit a and target b; c weighs the positive
 * class. */
static PST_ALWAYS_INLINE float bce_logits(float a, float b, float c)
{
    const float minus =
        pst_vm_log1p(pst_vm_exp(-fabsf(a))) + pst_vm_select(a < 0.0f, -a, 0.0f);

    return (1.0f - b) * a + (1.0f + (c - 1.0f) * b) * minus;
}

/* Binary cross entropy of the probability a; logarithms at least -100. */
static PST_ALWAYS_INLINE float bce(float a, float b)
{
    const float yes = pst_vm_log(a), no = pst_vm_log1p(-a);

    return (b - 1.0f) * pst_vm_select(no > -100.0f, no, -100.0f) -
           b * pst_vm_select(yes > -100.0f, yes, -100.0f);
}

static PST_ALWAYS_INLINE float bce_slope(float a, float b)
{
    const float both = (1.0f - a) * a;

    return (a - b) / pst_vm_select(both > 1e-12f, both, 1e-12f);
}

/* --- remainders ----------------------------------------------------------- */

/* True where vm_fmod is exact: a quotient below 2^24 that is no integer is
 * farther from the next one than the rounding error of a / b in double. */
static PST_ALWAYS_INLINE int vm_divides(float a, float b)
{
    return (fabsf(a) < 16777216.0f * fabsf(b)) & (fabsf(b) < INFINITY) &
           (fabsf(b) > 1e-30f);
}

static PST_ALWAYS_INLINE float vm_fmod(float a, float b)
{
    const double q = trunc((double)a / (double)b);

    return pst_vm_copysign((float)((double)a - q * (double)b), a);
}

/* Returns the remainder with the sign of b; rest: fmod(a, b). */
static PST_ALWAYS_INLINE float vm_remainder(float a, float b, float rest)
{
    (void)a;
    return pst_vm_select((rest != 0.0f) & ((b < 0.0f) != (rest < 0.0f)),
                         rest + b, rest);
}

/* Returns floor(a / b), with each step rounded as in PyTorch; rest: fmod(a,
 * b). */
static PST_ALWAYS_INLINE float vm_floor_divide(float a, float b, float rest)
{
    const int under = (rest != 0.0f) & ((b < 0.0f) != (rest < 0.0f));
    const float q = (a - rest) / b - pst_vm_select(under, 1.0f, 0.0f);
    const float whole = floorf(q);
    const float y = whole + pst_vm_select(q - whole > 0.5f, 1.0f, 0.0f);
    const float z = pst_vm_select(q == 0.0f, pst_vm_copysign(0.0f, a / b), y);

    return pst_vm_select(b == 0.0f, a / b, z);
}

/* Like PyTorch, computes the exponents 1/2 and -1/2 by sqrt, which differs from
 * pow at -0. */
static PST_ALWAYS_INLINE float vm_power(float a, float b)
{
    if (b == 0.5f)
        return sqrtf(a);
    if (b == -0.5f)
        return 1.0f / sqrtf(a);
    return (float)pow((double)a, (double)b);
}

/* Returns g c x^(c-1); 0 for c = 0. */
static PST_ALWAYS_INLINE float vm_pow_slope(float g, float x, float c)
{
    const double b = (double)c - 1.0, a = (double)x;
    const double y = b == 0.5 ? sqrt(a) : b == -0.5 ? 1.0 / sqrt(a) : pow(a, b);

    return c == 0.0f ? 0.0f : (float)((double)g * (double)c * y);
}

static PST_ALWAYS_INLINE float vm_sinc(float t)
{
    return t == 0.0f ? 1.0f : (float)(sin((double)t) / (double)t);
}

/* Clamps x to lo..hi, neither of which is NaN. */
static PST_ALWAYS_INLINE float vm_clamp_inside(float x, float lo, float hi)
{
    const float y = x < lo ? lo : x;

    return y > hi ? hi : y;
}

#endif
