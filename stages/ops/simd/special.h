// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_SPECIAL_H
#define PENSTOCK_STAGES_OPS_SIMD_SPECIAL_H
/* Special functions of f32 without branches and calls, computed in double and
 * rounded once: within 0.51 ulp (tests/ops/test_vecmath.c). */
#include "stages/ops/simd/vecmath.h"

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

/* x normal, positive and below 2^126: k ln 2 + 2 artanh s, whose terms are
 * below 2^-53 from s^21 on. */
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

/* Where the sums below overflow nothing. */
static PST_ALWAYS_INLINE int pst_vm_is_positive(float x)
{
    return (x > 0.0f) & (x < 1e15f);
}

/* 1/x + ... + 1/(x + 7) is n' / n, n = x (x + 1) ... (x + 7), in pairs. From
 * z = x + 8 on: log z - 1/2z - sum B_2k / (2k z^2k). */
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

/* The derivative: 1/x^2 + ... + 1/(x + 7)^2, then 1/z + 1/2z^2 +
 * sum B_2k / z^(2k+1). */
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

/* Quantiles of the normal distribution by Wichura's rational functions
 * (AS 241), in the middle of (1 + x) / 2 and, by the logarithm of what is left,
 * outside: f32 has nothing so near to 1 that his third one would be needed. */
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

#endif
