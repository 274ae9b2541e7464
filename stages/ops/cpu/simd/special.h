// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_SPECIAL_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_SPECIAL_H
/* Special functions of f32, computed in double and rounded once: within 0.51
 * ulp (tests/ops/test_vecmath.c). */
#include "stages/ops/cpu/simd/vecmath.h"

/* n[0] + n[1] x + ... */
#define PST_VM_HORNER(x, n)                                                    \
    pst_vm_horner((x), (int)(sizeof(n) / sizeof((n)[0])), (n))
static PST_ALWAYS_INLINE double pst_vm_horner(double x, int n, const double *c)
{
    double y = c[n - 1];

#pragma GCC unroll 16
    for (int k = n - 2; k >= 0; k--)
        y = y * x + c[k];
    return y;
}

/* Returns log(x) = k ln 2 + 2 artanh(s) of a normal, positive x below 2^126;
 * terms of the series are below 2^-53 from s^21 on. */
static PST_ALWAYS_INLINE double pst_vm_log_wide(double x)
{
    static const double odd[] = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,
                                 1.0 / 9.0,  1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0,
                                 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0};
    float k, m;
    double t, s;

    pst_vm_split((float)x, &k, &m);
    t = x * (double)pst_vm_float((int32_t)((uint32_t)(127 - (int32_t)k) << 23));
    s = (t - 1.0) / (t + 1.0);
    return (double)k * 0.69314718055994530942 +
           2.0 * s * PST_VM_HORNER(s * s, odd);
}

/* --- exponentials and logarithms ------------------------------------------ */

#define PST_VM_LOG2_E 1.44269504088896340736
#define PST_VM_LN_2   0.69314718055994530942
#define PST_VM_PI     3.14159265358979323846

/* Returns 2^x for |x| <= 1000, with a relative error of 2^-37; NaN stays. */
static PST_ALWAYS_INLINE double pst_vm_exp2_wide(double x)
{
    static const double series[] = {1.0,
                                    6.93147180559945309e-1,
                                    2.40226506959100712e-1,
                                    5.55041086648215800e-2,
                                    9.61812910762847716e-3,
                                    1.33335581464284434e-3,
                                    1.54035303933816099e-4,
                                    1.52527338040598403e-5,
                                    1.32154867901443094e-6,
                                    1.01780860092396997e-7};
    /* 1.5 * 2^52: adding it rounds to an integer */
    const double magic = 6755399441055744.0;
    const double t = x + magic;
    double p = PST_VM_HORNER(x - (t - magic), series);
    uint64_t bits, power;

    memcpy(&bits, &p, sizeof(bits));
    memcpy(&power, &t, sizeof(power));
    bits += power << 52;
    memcpy(&p, &bits, sizeof(p));
    return p;
}

/* Returns log(e^a + e^b): the larger operand plus log(1 + e) = 2 artanh(e / (2
 * + e)) with e = e^-|a - b|; the distance of equal infinities counts as 0. For
 * another base instead of e: log2_base = log2(base), over = 1 / ln(base). */
static PST_ALWAYS_INLINE float pst_vm_log_add(float a, float b,
                                              double log2_base, double over)
{
    static const double odd[] = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,
                                 1.0 / 9.0,  1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0,
                                 1.0 / 17.0, 1.0 / 19.0};
    const float x = pst_vm_select(a == b, 0.0f, a);
    const float y = pst_vm_select(a == b, 0.0f, b);
    double away = fabs((double)x - (double)y) * log2_base, e, s;

    away = away > 500.0 ? 500.0 : away;
    e = pst_vm_exp2_wide(-away);
    s = e / (2.0 + e);
    return (float)((double)(a > b ? a : b) +
                   over * 2.0 * s * PST_VM_HORNER(s * s, odd));
}

/* x log y; 0 for x = 0 unless y is NaN. */
static PST_ALWAYS_INLINE float pst_vm_x_log_y(float x, float y)
{
    const double l = pst_vm_log2_wide(y) * PST_VM_LN_2;
    const float z = pst_vm_log_ends(y, (float)((double)x * l));
    const float ends = x * pst_vm_log_ends(y, 1.0f);
    const int inside = (y > 0.0f) & (y < INFINITY);

    return pst_vm_select((x == 0.0f) & (y == y), 0.0f,
                         pst_vm_select(inside, z, ends));
}

/* --- powers --------------------------------------------------------------- */

/* True where pst_vm_pow_slope is valid; exponents 1/2 and -1/2 use roots
 * instead. */
static PST_ALWAYS_INLINE int pst_vm_has_pow_slope(float x, float c)
{
    return (pst_vm_abs(x) < INFINITY) & (pst_vm_abs(c) < 1e6f) & (c != 1.5f) &
           (c != 0.5f);
}

/* g c x^(c-1) */
static PST_ALWAYS_INLINE float pst_vm_pow_slope(float g, float x, float c)
{
    const double b = (double)c - 1.0;
    const float size = pst_vm_abs(x), half = 0.5f * c;
    const int whole = rintf(c) == c, odd = rintf(half) == half;
    double t = b * pst_vm_log2_wide(size);
    const float ends = g * c * pst_vm_select(c > 1.0f, 0.0f, INFINITY);
    float y;

    t = t > 500.0 ? 500.0 : t;
    t = t < -500.0 ? -500.0 : t;
    y = (float)((double)g * (double)c * pst_vm_exp2_wide(t));
    y = pst_vm_select(size == 0.0f, ends, y);
    y = pst_vm_select(c == 1.0f, g, y);
    y = pst_vm_select((pst_vm_bits(x) < 0) & odd, -y, y);
    y = pst_vm_select((x < 0.0f) & (whole ^ 1), NAN, y);
    return pst_vm_select(c == 0.0f, 0.0f, y);
}

/* Returns sqrt(a^2 + b^2); infinite if a side is infinite, even if the other
 * one is NaN. */
static PST_ALWAYS_INLINE float pst_vm_hypot(float a, float b)
{
    const double x = (double)a, y = (double)b;
    const int far = (pst_vm_abs(a) == INFINITY) | (pst_vm_abs(b) == INFINITY);

    return pst_vm_select(far, INFINITY, (float)sqrt(x * x + y * y));
}

/* --- gamma functions ------------------------------------------------------ */

/* Returns lgamma for x in (0, 1e15). For 1 + v in [1, 2] it is v (v - 1) times
 * a polynomial; the recurrence leads there from arguments below 3. Between 3
 * and 8 it is another polynomial, above 8 Stirling's series. */
static PST_ALWAYS_INLINE float pst_vm_lgamma(float x)
{
    static const double unit[] = {
        0.483128950540980889,    -0.145959895731826856,
        0.0629114009601663619,   -0.031308507866704826,
        0.0167971113983919261,   -0.00942497647586958142,
        0.00544605291057816703,  -0.00322078853120050139,
        0.00192837825527448989,  -0.00110805583109781991,
        0.000676204781045448955, -0.000607124844203539612,
        0.00037721545217415393};
    static const double middle[] = {
        3.95781396760383347,      1.61109314858428704,
        0.0996711937991799915,    -0.00660149130541136406,
        0.000653773679576673641,  -0.0000774548773669739646,
        0.0000101665323050703795, -1.42541986613307033e-6,
        2.08426861563371499e-7,   -3.16277371444651048e-8,
        5.20486427743170888e-9,   -8.29852020349449869e-10,
        8.11942802507605496e-11,  -1.29727058886103513e-11,
        7.33600451558205063e-12,  -1.23577225874470367e-12};
    static const double stirling[] = {1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0,
                                      -1.0 / 1680.0, 1.0 / 1188.0};
    const int below_1 = x < 1.0f, below_2 = x < 2.0f, below_3 = x < 3.0f;
    const float v =
        pst_vm_select(below_1, x, x - pst_vm_select(below_2, 1.0f, 2.0f));
    const float from_2 = pst_vm_select(below_3, x - 1.0f, x);
    const float from_1 = pst_vm_select(below_2, 1.0f, from_2);
    const double log_of =
        PST_VM_LN_2 * pst_vm_log2_wide(pst_vm_select(below_1, x, from_1));
    const double sign = (double)pst_vm_select(below_1, -1.0f, 1.0f);
    const double a = (double)x, w = (double)v, over = 1.0 / a;
    const float near =
        (float)(w * (w - 1.0) * PST_VM_HORNER(w - 0.5, unit) + sign * log_of);
    const float inside = (float)PST_VM_HORNER(a - 5.5, middle);
    const float far = (float)((a - 0.5) * log_of - a + 0.91893853320467274178 +
                              over * PST_VM_HORNER(over * over, stirling));

    return pst_vm_select(below_3, near, pst_vm_select(x < 8.0f, inside, far));
}

/* True where pst_vm_digamma and pst_vm_trigamma are valid: their sums do not
 * overflow. */
static PST_ALWAYS_INLINE int pst_vm_is_positive(float x)
{
    return (x > 0.0f) & (x < 1e15f);
}

/* Returns digamma: log z - 1/2z - sum B_2k / (2k z^2k) at z = x + 8, less 1/x +
 * ... + 1/(x + 7). The latter is n' / n with n = x (x + 1) ... (x + 7), in
 * pairs. */
static PST_ALWAYS_INLINE float pst_vm_digamma(float x)
{
    static const double series[] = {
        1.0 / 12.0,  -1.0 / 120.0,     1.0 / 252.0, -1.0 / 240.0,
        1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0,  -3617.0 / 8160.0};
    const double a = (double)x, z = a + 8.0, over = 1.0 / z, w = over * over;
    double up[4], down[4];

#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        down[k] = (a + 2.0 * k) * (a + 2.0 * k + 1.0);
        up[k] = 2.0 * a + 4.0 * k + 1.0;
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        up[k] = up[k] * down[k + 2] + up[k + 2] * down[k];
        down[k] *= down[k + 2];
    }
    up[0] = (up[0] * down[1] + up[1] * down[0]) / (down[0] * down[1]);
    return (float)(pst_vm_log_wide(z) - 0.5 * over -
                   w * PST_VM_HORNER(w, series) - up[0]);
}

/* Returns the derivative of digamma: 1/x^2 + ... + 1/(x + 7)^2, then 1/z +
 * 1/2z^2 + sum B_2k / z^(2k+1). */
static PST_ALWAYS_INLINE float pst_vm_trigamma(float x)
{
    static const double series[] = {
        1.0 / 6.0,  -1.0 / 30.0,     1.0 / 42.0, -1.0 / 30.0,
        5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0,  -3617.0 / 510.0};
    const double a = (double)x, over = 1.0 / (a + 8.0), w = over * over;
    double up[4], down[4];

#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const double p = a + 2.0 * k, q = p + 1.0;

        down[k] = p * p * (q * q);
        up[k] = p * p + q * q;
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        up[k] = up[k] * down[k + 2] + up[k + 2] * down[k];
        down[k] *= down[k + 2];
    }
    up[0] = (up[0] * down[1] + up[1] * down[0]) / (down[0] * down[1]);
    return (float)(up[0] + over + 0.5 * w +
                   over * w * PST_VM_HORNER(w, series));
}

/* Returns the inverse of erf by Wichura's rational functions for quantiles of
 * the normal distribution (AS 241): one in the middle, |x| <= 0.85, one
 * outside, in terms of the tail's logarithm. No f32 is so near to 1 that his
 * third one would be needed. */
static PST_ALWAYS_INLINE float pst_vm_erfinv(float x)
{
    static const double middle[2][8] = {
        {3.3871328727963666080e+0, 1.3314166789178437745e+2,
         1.9715909503065514427e+3, 1.3731693765509461125e+4,
         4.5921953931549871457e+4, 6.7265770927008700853e+4,
         3.3430575583588128105e+4, 2.5090809287301226727e+3},
        {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
         5.3941960214247511077e+3, 2.1213794301586595867e+4,
         3.9307895800092710610e+4, 2.8729085735721942674e+4,
         5.2264952788528545610e+3}};
    static const double outside[2][8] = {
        {1.42343711074968357734e+0, 4.63033784615654529590e+0,
         5.76949722146069140550e+0, 3.64784832476320460504e+0,
         1.27045825245236838258e+0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e+0, 1.67638483018380384940e+0,
         6.89767334985100004550e-1, 1.48103976427480074590e-1,
         1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9}};
    const double q = 0.5 * (double)x, size = (double)pst_vm_abs(x);
    const double rest = size < 1.0 ? 0.5 - 0.5 * size : 0.25;
    const double r = sqrt(-pst_vm_log_wide(rest)) - 1.6;
    const double z = 0.180625 - q * q;
    const float far = pst_vm_copysign(
        (float)(0.70710678118654752440 * PST_VM_HORNER(r, outside[0]) /
                PST_VM_HORNER(r, outside[1])),
        x);
    const float near =
        (float)(0.70710678118654752440 * q * PST_VM_HORNER(z, middle[0]) /
                PST_VM_HORNER(z, middle[1]));
    const float y = pst_vm_select(size <= 0.85, near, far);
    const float end = pst_vm_select(size == 1.0, INFINITY, NAN);

    return pst_vm_select(size < 1.0, y, pst_vm_copysign(end, x));
}

/* --- rarely used functions ------------------------------------------------ */

/* No common model spends time in these functions, so one in double is called
 * for each element. */
#define PST_VM_CALL(name, function)                                            \
    static PST_ALWAYS_INLINE float pst_vm_##name(float x)                      \
    {                                                                          \
        return (float)function((double)x);                                     \
    }
PST_VM_CALL(sinh, sinh)
PST_VM_CALL(cosh, cosh)
PST_VM_CALL(atan, atan)
PST_VM_CALL(atanh, atanh)

static PST_ALWAYS_INLINE float pst_vm_atan2(float y, float x)
{
    return (float)atan2((double)y, (double)x);
}

/* log(x / (1 - x)) */
static PST_ALWAYS_INLINE float pst_vm_logit(float x)
{
    return (float)(log((double)x) - log1p(-(double)x));
}

#endif
