// SPDX-License-Identifier: Apache-2.0
/*
 * The regularised incomplete gamma functions
 *
 *     P(a, x) = 1/Gamma(a) times the integral of t^(a-1) e^-t from 0 to x
 *     Q(a, x) = 1 - P(a, x)
 *
 * The function that is not close to 1 is computed, and the other one from it.
 */
#include "stages/ops/pointwise/special/special_math.h"

#include "stages/base/macros.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#define PI        3.14159265358979323846
#define SQRT_2_PI 2.50662827463100050242
#define LARGE     20.0 /* from this a on Gamma(a + 1) uses Stirling's series */
/* If a is at least HUGE_A and x is close to a, the uniform expansion is used:
 * the sums would need thousands of terms. */
#define HUGE_A  1e6
#define CLOSE   0.04
#define MAX_SUM 1000000

/* Returns log(1 + m) - m; for small m from the series of 2 artanh(m / (2 +
 * m)). */
static double log1p_less(double m)
{
    const double r = m / (2.0 + m);
    double power = 2.0 * r * r * r, sum = 0.0;

    if (fabs(m) > 0.5)
        return log1p(m) - m;
    for (int k = 3; k < 60 && fabs(power) > DBL_MIN; k += 2) {
        sum += power / k;
        power *= r * r;
    }
    return sum - m * r;
}

/* Returns log Gamma(1 + a); for small a with more digits than lgamma(1 + a). */
static double log_gamma_1p(double a)
{
    /* Minus Euler's constant, then zeta(k) / k with alternating signs. */
    static const double c[] = {-0.57721566490153286061, 0.82246703342411321824,
                               -0.40068563438653142847, 0.27058080842778454788,
                               -0.20738555102867398527};
    double sum = 0.0;

    if (a > 1e-3)
        return lgamma(1.0 + a);
    for (int k = (int)PST_COUNT(c); k-- > 0;)
        sum = a * (c[k] + sum);
    return sum;
}

/* Returns x^a e^-x / Gamma(a + 1). */
static double leading_factor(double a, double x)
{
    const double m = (x - a) / a, b = 1.0 / (a * a);
    const double stirling =
        (1.0 / 12 -
         b * (1.0 / 360 - b * (1.0 / 1260 - b * (1.0 / 1680 - b / 1188)))) /
        a;

    if (a < LARGE)
        return x > 1000.0 ? 0.0 : pow(x, a) * exp(-x) / tgamma(a + 1.0);
    return exp(a * (fabs(m) > 0.5 ? log(x / a) - m : log1p_less(m)) -
               stirling) /
           (SQRT_2_PI * sqrt(a));
}

/* P = front (1 + x/(a+1) + x^2/(a+1)(a+2) + ...) */
static double lower_sum(double a, double x)
{
    const double y = leading_factor(a, x);
    double term = 1.0, sum = 1.0;

    for (int k = 1; y > 0.0 && k < MAX_SUM && term > sum * 1e-17; k++) {
        term *= x / (a + k);
        sum += term;
    }
    return y * sum;
}

/* Q = 1 - x^a/Gamma(a+1) (1 - a (x/(a+1) - x^2/2!(a+2) + ...)), for small x. */
static double upper_sum(double a, double x)
{
    const double power = a * log(x) - log_gamma_1p(a);
    double term = 1.0, sum = 0.0;

    for (int k = 1; k < 100 && fabs(term) > 1e-19; k++) {
        term *= -x / k;
        sum += term / (a + k);
    }
    return -expm1(power) - exp(power) * a * sum;
}

/* Q = front a / (x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...))), by Lentz's
 * method. */
static double upper_fraction(double a, double x)
{
    double b = x + 1.0 - a, c = 1.0 / DBL_MIN, d = 1.0 / b, f = d;
    const double y = leading_factor(a, x);

    for (int k = 1; y > 0.0 && k < MAX_SUM; k++) {
        const double numerator = -k * (k - a);
        double step;

        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        step = c * d;
        f *= step;
        if (fabs(step - 1.0) < 1e-16)
            break;
    }
    return y * a * f;
}

/* Returns Q (sign 1) or P (sign -1) by Temme's expansion in e, where e^2 / 2
 * = m - log(1 + m) and m = (x - a) / a. */
static double uniform(double a, double m, double sign)
{
    const double half = -log1p_less(m), e = copysign(sqrt(2.0 * half), m);
    const double c0 =
        -1.0 / 3 +
        e * (1.0 / 12 +
             e * (-2.0 / 135 +
                  e * (1.0 / 864 + e * (1.0 / 2835 - e * 139.0 / 777600))));
    const double c1 = -1.0 / 540 - e * (1.0 / 288 - e / 378);

    return 0.5 * erfc(sign * e * sqrt(0.5 * a)) +
           sign * exp(-a * half) / (SQRT_2_PI * sqrt(a)) * (c0 + c1 / a);
}

/* Returns PyTorch's value if an operand is 0, infinite or invalid; -1 if none
 * is. zero: the value at x = 0. */
static double at_ends(double a, double x, double zero)
{
    if (a < 0.0 || x < 0.0)
        return NAN;
    if (a == 0.0)
        return x > 0.0 ? 1.0 - zero : NAN;
    if (x == 0.0)
        return zero;
    if (isinf(a))
        return isinf(x) ? NAN : zero;
    if (isinf(x))
        return 1.0 - zero;
    return isnan(a) || isnan(x) ? NAN : -1.0;
}

static double upper(double a, double x)
{
    const bool direct = x > 1.1   ? x >= a
                        : x > 0.5 ? a <= x * 1.1
                                  : a <= -0.4 / log(x);

    if (!direct)
        return 1.0 - lower_sum(a, x);
    return x > 1.1 ? upper_fraction(a, x) : upper_sum(a, x);
}

double pst_math_igamma(double a, double x)
{
    const double end = at_ends(a, x, 0.0), m = (x - a) / a;

    if (end != -1.0)
        return end;
    if (a > HUGE_A && fabs(m) < CLOSE)
        return uniform(a, m, -1.0);
    return x > 1.0 && x > a ? 1.0 - upper(a, x) : lower_sum(a, x);
}

double pst_math_igammac(double a, double x)
{
    const double end = at_ends(a, x, 1.0), m = (x - a) / a;

    if (end != -1.0)
        return end;
    if (a > HUGE_A && fabs(m) < CLOSE)
        return uniform(a, m, 1.0);
    return upper(a, x);
}
