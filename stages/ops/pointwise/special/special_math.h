// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POINTWISE_SPECIAL_SPECIAL_MATH_H
#define PENSTOCK_STAGES_OPS_POINTWISE_SPECIAL_SPECIAL_MATH_H
/* Special functions that libm lacks, in double, with relative error of about
 * 1e-14. */
#include <stdint.h>

double pst_math_digamma(double x);
/* The n-th derivative of digamma. */
double pst_math_polygamma(int64_t n, double x);
double pst_math_erfinv(double x);
/* The inverse of the normal distribution function. */
double pst_math_ndtri(double p);
/* exp(x^2) erfc(x) */
double pst_math_erfcx(double x);
/* log of the normal distribution function */
double pst_math_log_ndtr(double x);
/* Modified Bessel functions of the first kind. */
double pst_math_i0(double x);
double pst_math_i1(double x);
/* Modified Bessel functions of the first kind, times e^-|x|. */
double pst_math_i0e(double x);
double pst_math_i1e(double x);
/* Regularized incomplete gamma functions: lower, and upper. */
double pst_math_igamma(double a, double x);
double pst_math_igammac(double a, double x);

#endif
