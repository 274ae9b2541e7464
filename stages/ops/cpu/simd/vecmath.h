// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_VECMATH_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_VECMATH_H
/*
 * Elementary functions without branches, calls or tables, so that loops over
 * them vectorise. NaN and infinities behave as in libm. Largest errors in ulp,
 * with FMA (tests/ops/test_vecmath.c): exp 1, exp2 1.2, expm1 1.6, log 1, log2
 * 1.6, log10 1.6, log1p 1.6, sin and cos 1.5, tanh 1.5, sigmoid 2.2 (above
 * -87), erf 1.3, pow 1.7.
 */
#include "stages/base/macros.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static PST_ALWAYS_INLINE float pst_vm_float(int32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static PST_ALWAYS_INLINE int32_t pst_vm_bits(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Returns cond ? a : b, with a and b both computed: the compiler turns a
 * repeated ?: into branches, which it does not vectorise. */
static PST_ALWAYS_INLINE float pst_vm_select(int cond, float a, float b)
{
    const int32_t mask = -(int32_t)cond;

    return pst_vm_float((pst_vm_bits(a) & mask) | (pst_vm_bits(b) & ~mask));
}

/* e^x = 2^k e^r with |r| <= ln(2)/2; the power is applied in two halves so
 * that results below 2^-126 and overflow come out right. */
static PST_ALWAYS_INLINE float pst_vm_exp(float x)
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

/* True for x where pst_vm_exp_near is valid. */
static PST_ALWAYS_INLINE int pst_vm_is_exponent(float x)
{
    return fabsf(x) <= 87.0f;
}

static PST_ALWAYS_INLINE float pst_vm_exp_near(float x)
{
    const float magic = 12582912.0f;
    const float t = x * 1.44269504f + magic, k = t - magic;
    float r = x - k * 0.693359375f, p;

    r = r + k * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return pst_vm_float(
        (int32_t)((uint32_t)pst_vm_bits(p) + ((uint32_t)pst_vm_bits(t) << 23)));
}

/* Returns e^x for x in [-87, 88] and NaN. */
static PST_ALWAYS_INLINE float pst_vm_exp_inside(float x)
{
    const float magic = 12582912.0f;
    float k, r, p;
    int32_t n;

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

/* Returns e^x for x <= 88 and NaN; e^-87, almost 0, for all x below -87. */
static PST_ALWAYS_INLINE float pst_vm_exp_small(float x)
{
    return pst_vm_exp_inside(x < -87.0f ? -87.0f : x);
}

/* Returns e^x for x <= 0, as in a softmax: 0 below -87, so that nothing is
 * subnormal (each such result costs some hundred cycles). NaN stays. */
static PST_ALWAYS_INLINE float pst_vm_exp_neg(float x)
{
    const float y = pst_vm_exp_small(x);

    return pst_vm_select(x < -87.0f, 0.0f, y);
}

/* e^x - 1 = 2^k (e^r - 1) + (2^k - 1), which does not cancel. */
static PST_ALWAYS_INLINE float pst_vm_expm1(float x)
{
    const float magic = 12582912.0f;
    float k, r, p, scale, y;
    int32_t n;

    y = x > 88.0f ? 88.0f : x;
    y = y < -20.0f ? -20.0f : y;
    k = y * 1.44269504f + magic;
    n = pst_vm_bits(k) - 0x4b400000;
    k -= magic;
    r = y - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    scale = pst_vm_float((int32_t)((uint32_t)(n + 127) << 23));
    p = p * scale + (scale - 1.0f);
    p = pst_vm_select(x == 0.0f, x, p); /* keeps -0 */
    return pst_vm_select(x > 88.0f, pst_vm_exp(x), p);
}

/* Returns 2^x, which is exact for whole x. */
static PST_ALWAYS_INLINE float pst_vm_exp2(float x)
{
    const float magic = 12582912.0f;
    float k, r, p;
    int32_t n, half;

    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    k = x + magic;
    n = pst_vm_bits(k) - 0x4b400000;
    k -= magic;
    r = x - k;
    p = 1.535336188e-4f;
    p = p * r + 1.339887440e-3f;
    p = p * r + 9.618437357e-3f;
    p = p * r + 5.550332471e-2f;
    p = p * r + 2.402264791e-1f;
    p = p * r + 6.931472028e-1f;
    p = p * r + 1.0f;
    half = n >> 1;
    return p * pst_vm_float((int32_t)((uint32_t)(half + 127) << 23)) *
           pst_vm_float((int32_t)((uint32_t)(n - half + 127) << 23));
}

/* Splits x > 0 into 2^k (1 + m) with 1 + m in [sqrt(1/2), sqrt(2)). */
static PST_ALWAYS_INLINE void pst_vm_split(float x, float *ret_k, float *ret_m)
{
    const float tiny = 1.17549435e-38f; /* smallest normal number */
    const float y = x < tiny ? x * 8388608.0f : x;
    const int32_t bits = pst_vm_bits(y);
    const int32_t e = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;

    *ret_m =
        pst_vm_float((int32_t)((uint32_t)bits - ((uint32_t)e << 23))) - 1.0f;
    *ret_k = (float)(e - (x < tiny ? 23 : 0));
}

/* log(1 + m) - m */
static PST_ALWAYS_INLINE float pst_vm_log_rest(float m)
{
    const float z = m * m;
    float p = 7.0376836292e-2f;

    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return p * m * z - 0.5f * z;
}

/* Returns the logarithm of x: y for normal results; -inf, NaN or inf if x is 0,
 * negative, NaN or infinite. */
static PST_ALWAYS_INLINE float pst_vm_log_ends(float x, float y)
{
    float p = pst_vm_select(x == 0.0f, -INFINITY, NAN);

    p = pst_vm_select(x > 0.0f, y, p);
    return pst_vm_select(x < INFINITY, p, x + x); /* x + x: NaN or infinity */
}

/* k ln 2 + log(1 + m) */
static PST_ALWAYS_INLINE float pst_vm_log(float x)
{
    float k, m, p;

    pst_vm_split(x, &k, &m);
    p = pst_vm_log_rest(m) + k * -2.12194440e-4f;
    return pst_vm_log_ends(x, m + p + k * 0.693359375f);
}

/* Returns log2(x), exact for powers of 2. log2(e) is 1 + .4426... */
static PST_ALWAYS_INLINE float pst_vm_log2(float x)
{
    float k, m, p;

    pst_vm_split(x, &k, &m);
    p = pst_vm_log_rest(m);
    p = p * 0.44269504f + m * 0.44269504f + p;
    return pst_vm_log_ends(x, p + m + k);
}

static PST_ALWAYS_INLINE float pst_vm_log10(float x)
{
    float k, m, p;

    pst_vm_split(x, &k, &m);
    p = pst_vm_log_rest(m);
    /* log10(e) = .43359375 + 7.00731903e-4; log10(2) is split likewise */
    p = p * 0.43429448f + m * 7.00731903e-4f + k * 2.48745664e-4f;
    return pst_vm_log_ends(x, p + m * 0.43359375f + k * 0.30078125f);
}

/* True for normal x > 0, where log_near, log2_near and log10_near give the bits
 * of log, log2 and log10; their k is in units of 2^-23. */
static PST_ALWAYS_INLINE int pst_vm_is_normal(float x)
{
    return (uint32_t)pst_vm_bits(x) - 0x00800000u < 0x7f000000u;
}

static PST_ALWAYS_INLINE void pst_vm_split_near(float x, float *ret_k,
                                                float *ret_m)
{
    const uint32_t bits = (uint32_t)pst_vm_bits(x);
    const uint32_t e = (bits - 0x3f3504f3u) & 0xff800000u;

    *ret_m = pst_vm_float((int32_t)(bits - e)) - 1.0f;
    *ret_k = (float)(int32_t)e;
}

#define PST_VM_K(c) ((c)*1.1920928955078125e-7f)

static PST_ALWAYS_INLINE float pst_vm_log_near(float x)
{
    float k, m, p;

    pst_vm_split_near(x, &k, &m);
    p = pst_vm_log_rest(m) + k * PST_VM_K(-2.12194440e-4f);
    return m + p + k * PST_VM_K(0.693359375f);
}

static PST_ALWAYS_INLINE float pst_vm_log2_near(float x)
{
    float k, m, p;

    pst_vm_split_near(x, &k, &m);
    p = pst_vm_log_rest(m);
    p = p * 0.44269504f + m * 0.44269504f + p;
    return p + m + k * PST_VM_K(1.0f);
}

static PST_ALWAYS_INLINE float pst_vm_log10_near(float x)
{
    float k, m, p;

    pst_vm_split_near(x, &k, &m);
    p = pst_vm_log_rest(m);
    p = p * 0.43429448f + m * 7.00731903e-4f + k * PST_VM_K(2.48745664e-4f);
    return p + m * 0.43359375f + k * PST_VM_K(0.30078125f);
}

/* log(u) plus the rounding error of u = 1 + x. */
static PST_ALWAYS_INLINE float pst_vm_log1p(float x)
{
    const float u = 1.0f + x, lost = x - (u - 1.0f);
    const float rest = pst_vm_select(x > -1.0f, lost / u, 0.0f);
    const float y = pst_vm_log(u) + rest;

    return pst_vm_select((u == 1.0f) | (x == INFINITY), x, y);
}

/* --- angles --------------------------------------------------------------- */

/* True where the reduction by multiples of pi / 2 in double is accurate
 * enough. */
static PST_ALWAYS_INLINE int pst_vm_is_angle(float x)
{
    return fabsf(x) < 1e6f;
}

/* x = q pi/2 + r with |r| <= pi/4; the first part of pi/2 has 33 bits. */
static PST_ALWAYS_INLINE double pst_vm_quadrant_wide(float x, int64_t *ret_q)
{
    /* 1.5 * 2^52: adding it rounds to an integer */
    const double magic = 6755399441055744.0;
    double k = (double)x * 0.63661977236758134308 + magic;

    memcpy(ret_q, &k, sizeof(*ret_q));
    k -= magic;
    return ((double)x - k * 1.57079632673412561417) -
           k * 6.07710050650619224932e-11;
}

static PST_ALWAYS_INLINE float pst_vm_quadrant(float x, int32_t *ret_q)
{
    int64_t q;
    const double r = pst_vm_quadrant_wide(x, &q);

    *ret_q = (int32_t)q;
    return (float)r;
}

/* Returns the sine of r + q pi/2. */
static PST_ALWAYS_INLINE float pst_vm_sin_part(float r, int32_t q)
{
    const float z = r * r;
    float s = -1.9515295891e-4f, c = 2.443315711809948e-5f, y;

    s = s * z + 8.3321608736e-3f;
    s = s * z - 1.6666654611e-1f;
    s = pst_vm_select(z == 0.0f, r, s * z * r + r); /* keeps -0 */
    c = c * z - 1.388731625493765e-3f;
    c = c * z + 4.166664568298827e-2f;
    c = c * z * z - 0.5f * z + 1.0f;
    y = pst_vm_select(q & 1, c, s);
    return pst_vm_float(pst_vm_bits(y) ^ (int32_t)((uint32_t)(q & 2) << 30));
}

static PST_ALWAYS_INLINE float pst_vm_sin(float x)
{
    int32_t q;
    const float r = pst_vm_quadrant(x, &q);

    return pst_vm_sin_part(r, q);
}

static PST_ALWAYS_INLINE float pst_vm_cos(float x)
{
    int32_t q;
    const float r = pst_vm_quadrant(x, &q);

    return pst_vm_sin_part(r, q + 1);
}

/* --- powers --------------------------------------------------------------- */

static PST_ALWAYS_INLINE int pst_vm_is_power(float a, float b)
{
    return (fabsf(a) < INFINITY) & (fabsf(b) < 1e9f) & (fabsf(b) != 0.5f);
}

/* log2 x in double, within 2^-39 of its size; x > 0. */
static PST_ALWAYS_INLINE double pst_vm_log2_wide(float x)
{
    float k, m;
    double s, z, p;

    pst_vm_split(x, &k, &m);
    s = (double)m / ((double)m + 2.0);
    z = s * s;
    p = 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    return (double)k + 2.88539008177792681472 * s * p;
}

/* 2^(b log2 |a|) with the logarithm in double, then the sign. */
static PST_ALWAYS_INLINE float pst_vm_pow(float a, float b)
{
    const float size = pst_vm_float(pst_vm_bits(a) & INT32_MAX);
    const float half = b * 0.5f;
    const int whole = rintf(b) == b, odd = whole & (rintf(half) != half);
    double t = (double)b * pst_vm_log2_wide(size);
    float k, f, y;
    int32_t n, n0;

    t = t > 150.0 ? 150.0 : t;
    t = t < -170.0 ? -170.0 : t;
    k = rintf((float)t);
    f = (float)(t - (double)k);
    y = pst_vm_exp2(f);
    n = (int32_t)k;
    n0 = n >> 1;
    y = y * pst_vm_float((int32_t)((uint32_t)(n0 + 127) << 23)) *
        pst_vm_float((int32_t)((uint32_t)(n - n0 + 127) << 23));
    y = pst_vm_select(size == 0.0f, pst_vm_select(b > 0.0f, 0.0f, INFINITY), y);
    y = pst_vm_select((pst_vm_bits(a) < 0) & odd, -y, y);
    y = pst_vm_select((a < 0.0f) & (whole ^ 1), NAN, y);
    return pst_vm_select(b == 0.0f, 1.0f, y);
}

static PST_ALWAYS_INLINE float pst_vm_copysign(float x, float sign)
{
    return pst_vm_float((pst_vm_bits(x) & INT32_MAX) |
                        (pst_vm_bits(sign) & INT32_MIN));
}

static PST_ALWAYS_INLINE float pst_vm_abs(float x)
{
    return pst_vm_float(pst_vm_bits(x) & INT32_MAX);
}

/* Odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1), then the sign. */
static PST_ALWAYS_INLINE float pst_vm_tanh(float x)
{
    const float size = pst_vm_abs(x), z = x * x;
    const float twice = size > 10.0f ? 20.0f : size + size;
    const float big = 1.0f - 2.0f / (pst_vm_exp_inside(twice) + 1.0f);
    float p;

    p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * size + size;
    p = size < 0.625f ? p : big;
    return pst_vm_float(pst_vm_bits(p) | (pst_vm_bits(x) & INT32_MIN));
}

/* Returns 1 / (1 + e^-x); 0 for x below -87, so that no result is subnormal. */
static PST_ALWAYS_INLINE float pst_vm_sigmoid(float x)
{
    const float y = x < -87.0f ? 87.0f : -x;
    const float s = 1.0f / (1.0f + pst_vm_exp_small(y));

    return pst_vm_select(x < -87.0f, 0.0f, s);
}

/* x P(x^2) below 0.93, else 1 - e^Q(|x|); minimax coefficients. */
static PST_ALWAYS_INLINE float pst_vm_erf(float x)
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
