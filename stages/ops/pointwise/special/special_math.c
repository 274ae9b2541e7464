// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pointwise/special/special_math.h"

#include "stages/base/macros.h"

#include <math.h>
#include <stdbool.h>

#define PI       3.14159265358979323846
#define SQRT_PI  1.77245385090551602730
#define SQRT_1_2 0.70710678118654752440

/* Bernoulli numbers B_2, B_4, ... */
static const double bernoulli[] = {
    1.0 / 6.0,       -1.0 / 30.0,       1.0 / 42.0, -1.0 / 30.0,
    5.0 / 66.0,      -691.0 / 2730.0,   7.0 / 6.0,  -3617.0 / 510.0,
    43867.0 / 798.0, -174611.0 / 330.0,
};

/* Uses the recurrence up to x >= 10, then log x - 1/2x - sum B_2k / (2k
 * x^2k). */
double pst_math_digamma(double x)
{
    double y = 0.0, power;

    if (x == 0.0)
        return copysign(INFINITY, -x);
    if (x < 0.0) { /* psi(1 - x) - psi(x) = pi / tan(pi x) */
        const double fraction = x - floor(x);

        if (fraction == 0.0)
            return NAN;
        return pst_math_digamma(1.0 - x) - PI / tan(PI * fraction);
    }
    if (isinf(x))
        return x;
    for (; x < 10.0; x += 1.0)
        y -= 1.0 / x;
    y += log(x) - 0.5 / x;
    power = 1.0 / (x * x);
    for (int k = 0; k < (int)PST_COUNT(bernoulli); k++) {
        y -= bernoulli[k] / (2.0 * (k + 1)) * power;
        power /= x * x;
    }
    return y;
}

/* Returns Hurwitz's zeta(s, x) = sum (x + k)^-s: adds the first terms, then
 * uses the Euler-Maclaurin formula. */
static double zeta(double s, double x)
{
    double sum = 0.0, factor, power;

    for (int k = 0; k < 12; k++, x += 1.0)
        sum += pow(x, -s);
    sum += pow(x, 1.0 - s) / (s - 1.0) + 0.5 * pow(x, -s);
    factor = s;
    power = pow(x, -s - 1.0);
    for (int k = 0; k < (int)PST_COUNT(bernoulli); k++) {
        const double j = 2.0 * (k + 1);

        sum += bernoulli[k] * factor * power / tgamma(j + 1.0);
        factor *= (s + j - 1.0) * (s + j);
        power /= x * x;
    }
    return sum;
}

/* Returns (-1)^(n+1) n! zeta(n + 1, x). */
double pst_math_polygamma(int64_t n, double x)
{
    const double sign = n % 2 == 0 ? -1.0 : 1.0;
    double below = 0.0;

    if (n == 0)
        return pst_math_digamma(x);
    if (x <= 0.0 && x == floor(x))
        return INFINITY;
    for (; x < 0.0; x += 1.0)
        below += pow(x, (double)(-n - 1));
    return sign * tgamma((double)n + 1.0) * (below + zeta((double)n + 1.0, x));
}

/* Uses Halley's method, from Winitzki's approximation, which has an error of
 * 2e-3. */
double pst_math_erfinv(double x)
{
    const double a = 0.147, l = log1p(-x * x);
    const double t = 2.0 / (PI * a) + 0.5 * l;
    double y = copysign(sqrt(sqrt(t * t - l / a) - t), x);

    if (fabs(x) >= 1.0)
        return fabs(x) == 1.0 ? copysign(INFINITY, x) : NAN;
    if (x == 0.0 || isnan(x))
        return x;
    for (int k = 0; k < 4; k++) {
        const double tail =
            x > 0.0 ? (1.0 - x) - erfc(y) : erfc(-y) - (1.0 + x);
        /* f / f', where f = erf(y) - x */
        const double step = tail * 0.5 * SQRT_PI * exp(y * y);

        y -= step / (1.0 + y * step);
    }
    return y;
}

/* For large x, evaluates Laplace's continued fraction from its end. */
double pst_math_erfcx(double x)
{
    double f = 0.0;

    if (x < 4.0)
        return exp(x * x) * erfc(x);
    if (x > 1e9)
        return 1.0 / (SQRT_PI * x);
    for (int k = 60; k > 0; k--)
        f = 0.5 * k / (x + f);
    return 1.0 / (SQRT_PI * (x + f));
}

/* Uses erfinv if the smaller tail q is above 1/4; else solves log erfc(y) = log
 * 2q by Newton's method. The left side falls and is concave, so that after the
 * first step all iterates are at or above the root. */
double pst_math_ndtri(double p)
{
    const double q = p < 0.5 ? p : 1.0 - p;
    double y, log_q;

    if (!(p >= 0.0 && p <= 1.0))
        return NAN;
    if (q == 0.0)
        return copysign(INFINITY, p - 0.5);
    if (q > 0.25)
        return pst_math_erfinv(2.0 * p - 1.0) / SQRT_1_2;
    log_q = log(2.0 * q);
    y = sqrt(-log_q - log(2.0));
    for (int k = 0; k < 8; k++) {
        const double scaled = pst_math_erfcx(y);

        y += (log(scaled) - log_q - y * y) * 0.5 * SQRT_PI * scaled;
    }
    return copysign(y, p - 0.5) / SQRT_1_2;
}

double pst_math_log_ndtr(double x)
{
    if (x < -1.0)
        return log(0.5 * pst_math_erfcx(-x * SQRT_1_2)) - 0.5 * x * x;
    return log1p(-0.5 * erfc(x * SQRT_1_2));
}

/* Returns I_order(x), times e^-|x| if `scaled`. Uses the power series or, for
 * large x, e^x / sqrt(2 pi x) times the asymptotic series, cut before its terms
 * grow. */
static double bessel(double x, int order, bool scaled)
{
    const double z = fabs(x), mu = 4.0 * order * order;
    double term = 1.0, sum = 1.0;

    if (isnan(x))
        return x;
    if (z < 30.0) {
        term = sum = order == 1 ? 0.5 * z : 1.0;
        for (int k = 1; k < 200 && term > sum * 1e-18; k++) {
            term *= 0.25 * z * z / ((double)k * (k + order));
            sum += term;
        }
        return scaled ? sum * exp(-z) : sum;
    }
    for (int k = 1; k < 60; k++) {
        const double odd = 2.0 * k - 1.0;
        const double next = -term * (mu - odd * odd) / (8.0 * k * z);

        if (fabs(next) >= fabs(term) || fabs(next) < 1e-18)
            break;
        term = next;
        sum += term;
    }
    if (scaled)
        return sum / sqrt(2.0 * PI * z);
    return exp(0.5 * z) * sum / sqrt(2.0 * PI * z) * exp(0.5 * z);
}

double pst_math_i0(double x)
{
    return bessel(x, 0, false);
}

double pst_math_i0e(double x)
{
    return bessel(x, 0, true);
}

double pst_math_i1(double x)
{
    return copysign(bessel(x, 1, false), x);
}

double pst_math_i1e(double x)
{
    return copysign(bessel(x, 1, true), x);
}
