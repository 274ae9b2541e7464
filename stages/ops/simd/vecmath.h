// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_VECMATH_H
#define PENSTOCK_STAGES_OPS_SIMD_VECMATH_H
/*
 * Elementary functions without branches, calls or tables, so that loops over
 * them vectorise. NaN and infinities behave as in libm. Errors, with FMA, over
 * all floats of the range: expf 1 ulp, logf 1, erff 1.2, tanhf 1.5, sigmoidf
 * 2 (above -87).
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float pst_vm_float(int32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline int32_t pst_vm_bits(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* e^x = 2^k e^r with |r| <= ln(2)/2; the power is applied in two halves so
 * that results below 2^-126 and overflow come out right. */
static inline float pst_vm_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    float k, r, p;
    int32_t n, half;

    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    k = x * 1.44269504f + magic;
    n = pst_vm_bits(k) - 0x4b400000;
    k -= magic;
    r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    half = n >> 1;
    return p * pst_vm_float((int32_t)((uint32_t)(half + 127) << 23)) *
           pst_vm_float((int32_t)((uint32_t)(n - half + 127) << 23));
}

/* The same for x in [-87, 88]: less work where the range is known. Lower x
 * give 0 or next to it; NaN stays. */
static inline float pst_vm_exp_small(float x)
{
    const float magic = 12582912.0f;
    float k, r, p;
    int32_t n;

    x = x < -87.0f ? -87.0f : x;
    k = x * 1.44269504f + magic;
    n = pst_vm_bits(k) - 0x4b400000;
    k -= magic;
    r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * pst_vm_float((int32_t)((uint32_t)(n + 127) << 23));
}

/* For x <= 0, as in a softmax: 0 below -87, so that nothing is subnormal (each
 * such result costs some hundred cycles). NaN stays. */
static inline float pst_vm_exp_neg(float x)
{
    const float y = pst_vm_exp_small(x);

    return x < -87.0f ? 0.0f : y;
}

/* log(2^k m) = k ln 2 + log m with m in [sqrt(1/2), sqrt(2)). */
static inline float pst_vm_log(float x)
{
    const float tiny = 1.17549435e-38f; /* smallest normal number */
    float y = x < tiny ? x * 8388608.0f : x, m, z, p, k;
    int32_t bits = pst_vm_bits(y), e;

    e = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
    m = pst_vm_float((int32_t)((uint32_t)bits - ((uint32_t)e << 23)));
    k = (float)(e - (x < tiny ? 23 : 0));
    m -= 1.0f;
    z = m * m;
    p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z;
    p += k * -2.12194440e-4f;
    p -= 0.5f * z;
    p = m + p + k * 0.693359375f;
    p = x > 0.0f ? p : (x == 0.0f ? -INFINITY : NAN);
    return x < INFINITY ? p : (x == x ? INFINITY : x);
}

static inline float pst_vm_copysign(float x, float sign)
{
    return pst_vm_float((pst_vm_bits(x) & INT32_MAX) |
                        (pst_vm_bits(sign) & INT32_MIN));
}

static inline float pst_vm_abs(float x)
{
    return pst_vm_float(pst_vm_bits(x) & INT32_MAX);
}

/* Odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1). */
static inline float pst_vm_tanh(float x)
{
    float a = pst_vm_abs(x), z = x * x, p, big;

    p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    big = a > 10.0f ? 10.0f : a;
    big = 1.0f - 2.0f / (pst_vm_exp_small(2.0f * big) + 1.0f);
    big = pst_vm_copysign(big, x);
    return a < 0.625f ? p : (x == x ? big : x);
}

/* 0 below -87, so that nothing is subnormal. */
static inline float pst_vm_sigmoid(float x)
{
    const float y = x < -87.0f ? 87.0f : -x;
    const float s = 1.0f / (1.0f + pst_vm_exp_small(y));

    return x < -87.0f ? 0.0f : s;
}

/* x P(x^2) below 0.93, else 1 - e^Q(|x|); minimax coefficients. */
static inline float pst_vm_erf(float x)
{
    float t = pst_vm_abs(x), s = x * x, r, u, small;

    r = -1.72853470e-5f * t + 3.83197126e-4f;
    u = -3.88396438e-3f * t + 2.42546219e-2f;
    r = r * s + u;
    r = r * t - 1.06777877e-1f;
    r = r * t - 6.34846687e-1f;
    r = r * t - 1.28717512e-1f;
    r = r * t - t;
    r = pst_vm_copysign(1.0f - pst_vm_exp_small(r), x);
    small = -5.96761703e-4f;
    small = small * s + 4.99119423e-3f;
    small = small * s - 2.67681349e-2f;
    small = small * s + 1.12819925e-1f;
    small = small * s - 3.76125336e-1f;
    small = small * s + 1.28379166e-1f;
    small = small * x + x;
    return t > 0.927734375f ? r : small;
}

#endif
