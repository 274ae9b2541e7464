// SPDX-License-Identifier: Apache-2.0
/* Functions of complex numbers; complex.c describes the layout. */
#include "stages/ops/complex/rows.h"

/* --- roots, logarithms, powers ------------------------------------------- */

COMPLEX(square, "square(Tensor self) -> Tensor", "complex.mul(self, self)");
/* m scales self so that its larger part is between 1 and 2; t is the larger
 * part of the root of self / m. p is positive, so that the sum in t does not
 * cancel. The sign of an imaginary zero chooses the side of the branch cut. */
COMPLEX(sqrt, "sqrt(Tensor self) -> Tensor",
        ONE SCALE("a", "b") "none = detach(maximum(abs(a), abs(b))) == 0;"
                            "x = none ? 1.0 : a / m; y = b / m;"
                            "p = a < 0 ? -x : x;"
                            "t = sqrt((sqrt(x * x + y * y) + p) / 2);"
                            "s = copysign.Tensor(ones_like(b), detach(b));"
                            "h = y / (t * 2); k = sqrt(m);"
                            "stack([none ? abs(a) : k * (a < 0 ? h * s : t), "
                            "none ? b : k * (a < 0 ? t * s : h)], -1)");
COMPLEX(rsqrt, "rsqrt(Tensor self) -> Tensor",
        "complex.reciprocal(complex.sqrt(self))");
COMPLEX(log, "log(Tensor self) -> Tensor",
        ONE SCALE("a", "b") "stack([log(complex.abs(self)), "
                            "atan2(b / m, a / m)], -1)");
COMPLEX(log2, "log2(Tensor self) -> Tensor",
        "complex.log(self) * 1.4426950408889634");
COMPLEX(log10, "log10(Tensor self) -> Tensor",
        "complex.log(self) * 0.43429448190325183");

/* 0 to any power is 0, but 0 to the power 0 is 1; otherwise the result is
 * exp(exponent log(self)). */
#define POWER                                                                  \
    ONE SCALE("a", "b") "c = select.int(exponent, -1, 0);"                     \
                        "d = select.int(exponent, -1, 1);"                     \
                        "none = detach(maximum(abs(a), abs(b))) == 0;"         \
                        "x = none ? 1.0 : a / m;"                              \
                        "base = none ? 1.0 : complex.abs(self);"               \
                        "turn = atan2(b / m, x); size = log(base);"            \
                        "r = exp(c * size - d * turn);"                        \
                        "w = d * size + c * turn;"                             \
                        "one = cast(logical_and(c == 0, d == 0), dtype(a));"   \
                        "stack([none ? one : r * cos(w), "                     \
                        "none ? one * 0 : r * sin(w)], -1)"
COMPLEX(pow_Tensor_Tensor,
        "pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", POWER);
COMPLEX(pow_Scalar, "pow.Scalar(Tensor self, Tensor exponent) -> Tensor",
        POWER);
/* Small integer exponents are computed by multiplication, others by the power
 * of the absolute value. */
COMPLEX(pow_Tensor_Scalar,
        "pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
        ONE SCALE("a",
                  "b") "square = complex.mul(self, self);"
                       "none = detach(maximum(abs(a), abs(b))) == 0;"
                       "turn = atan2(b / m, none ? 1.0 : a / m) * exponent;"
                       "r = pow.Tensor_Scalar(complex.abs(self), exponent);"
                       "exponent == 0 ? complex.ones_like(self) : "
                       "exponent == 1 ? clone(self) : "
                       "exponent == 2 ? square : "
                       "exponent == 3 ? complex.mul(square, self) : "
                       "exponent == 4 ? complex.mul(square, square) : "
                       "exponent == 0.5 ? complex.sqrt(self) : "
                       "exponent == -0.5 ? complex.rsqrt(self) : "
                       "exponent == -1 ? complex.reciprocal(self) : "
                       "exponent == -2 ? complex.reciprocal(square) : "
                       "stack([r * cos(turn), r * sin(turn)], -1)");

/* --- circular and hyperbolic functions ----------------------------------- */

/* even(t) and odd(t) are t cosh(v) and t sinh(v). Where cosh overflows, t is
 * multiplied twice by the root of exp(|v|), so that a small t keeps the result
 * finite. */
#define HYPERBOLIC(v)                                                          \
    "large = abs(" v ") > 40; w = large ? 0.0 : " v ";"                        \
    "root = exp((large ? abs(" v ") : 0.0) / 2); even = cosh(w);"              \
    "odd = sinh(w); sign = " v " < 0 ? -1.0 : 1.0;"
#define EVEN(t)    "(large ? " t " * 0.5 * root * root : " t " * even)"
#define ODD(t)     "(large ? " t " * 0.5 * root * root * sign : " t " * odd)"
#define PAIR(x, y) "stack([" x ", " y "], -1)"
COMPLEX(sinh, "sinh(Tensor self) -> Tensor",
        ONE HYPERBOLIC("a") PAIR(ODD("cos(b)"), EVEN("sin(b)")));
COMPLEX(cosh, "cosh(Tensor self) -> Tensor",
        ONE HYPERBOLIC("a") PAIR(EVEN("cos(b)"), ODD("sin(b)")));
COMPLEX(sin, "sin(Tensor self) -> Tensor",
        ONE HYPERBOLIC("b") PAIR(EVEN("sin(a)"), ODD("cos(a)")));
COMPLEX(cos, "cos(Tensor self) -> Tensor",
        ONE HYPERBOLIC("b") PAIR(EVEN("cos(a)"), "-" ODD("sin(a)")));
/* tanh = (sinh(2 a) + i sin(2 b)) / (cosh(2 a) + cos(2 b)), both multiplied by
 * 2 exp(-2 |a|) to avoid overflow */
COMPLEX(tanh, "tanh(Tensor self) -> Tensor",
        ONE "sign = a < 0 ? -1.0 : 1.0; u = a * sign * -2; e = exp(u);"
            "q = -expm1(u); c = cos(b); n = q * q + e * c * c * 4;"
            "stack([sign * q * (e + 1) / n, e * sin(b) * c * 4 / n], -1)");
/* tan(z) = -i tanh(i z) */
COMPLEX(tan, "tan(Tensor self) -> Tensor",
        ONE "t = complex.tanh(stack([-b, a], -1));"
            "stack([select.int(t, -1, 1), -select.int(t, -1, 0)], -1)");
/* Computes 1 / (1 + exp(-z)), or exp(z) / (1 + exp(z)) where a is negative, so
 * that exponents are never positive. */
COMPLEX(sigmoid, "sigmoid(Tensor self) -> Tensor",
        ONE "sign = a < 0 ? -1.0 : 1.0; e = exp(-(a * sign));"
            "x = e * cos(b); y = -(e * sin(b) * sign);"
            "complex.div(stack([a < 0 ? x : 1.0, a < 0 ? y : 0.0], -1), "
            "stack([x + 1, y], -1))");
COMPLEX(silu, "silu(Tensor self) -> Tensor",
        "complex.mul(self, complex.sigmoid(self))");

/* --- predicates, norms ---------------------------------------------------- */

/* 0 / |0| is 0, and so is its gradient. */
COMPLEX(sgn, "sgn(Tensor self) -> Tensor",
        "r = unsqueeze(complex.abs(self), -1);"
        "(r == 0 ? 0.0 : self) / (r == 0 ? 1.0 : r)");
#define EQUAL TWO "logical_and(a == c, b == d)"
#define OTHER TWO "logical_or(a != c, b != d)"
COMPLEX(eq_Tensor, "eq.Tensor(Tensor self, Tensor other) -> Tensor", EQUAL);
COMPLEX(eq_Scalar, "eq.Scalar(Tensor self, Tensor other) -> Tensor", EQUAL);
COMPLEX(ne_Tensor, "ne.Tensor(Tensor self, Tensor other) -> Tensor", OTHER);
COMPLEX(ne_Scalar, "ne.Scalar(Tensor self, Tensor other) -> Tensor", OTHER);
COMPLEX(isnan, "isnan(Tensor self) -> Tensor",
        ONE "logical_or(isnan(a), isnan(b))");
COMPLEX(isinf, "isinf(Tensor self) -> Tensor",
        ONE "logical_or(isinf(a), isinf(b))");
COMPLEX(isfinite, "isfinite(Tensor self) -> Tensor",
        ONE "logical_and(isfinite(a), isfinite(b))");

COMPLEX(linalg_vector_norm,
        "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, "
        "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "linalg_vector_norm(complex.abs(self), ord, dim, keepdim, "
        "dtype=dtype)");
COMPLEX(norm_Scalar, "norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
        "linalg_vector_norm(complex.abs(self), p)");
COMPLEX(norm_ScalarOpt_dim,
        "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, "
        "bool keepdim=False) -> Tensor",
        "linalg_vector_norm(complex.abs(self), is(p) ? p : 2, dim, keepdim)");
/* Only the Frobenius norm is supported: other matrix norms need singular
 * values. */
COMPLEX(linalg_norm,
        "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, "
        "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "r = complex.abs(self);"
        "lines = is(dim) ? len(dim) : rank(r);"
        "is(ord) ? (lines == 1 ? linalg_vector_norm(r, ord, dim, keepdim, "
        "dtype=dtype) : fail('a matrix norm of complex numbers')) : "
        "linalg_vector_norm(r, 2, dim, keepdim, dtype=dtype)");

/* --- sums ---------------------------------------------------------------- */

/* The sum of a tensor without dimensions is the tensor. */
#define SUM(op)                                                                \
    "z = cast(self, dtype);"                                                   \
    "rank(self) == 1 ? z : " op "(z, dim, keepdim)"
#define DIMS "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
COMPLEX(sum_dim_IntList, "sum.dim_IntList(Tensor self, int[1]? dim, " DIMS,
        SUM("sum.dim_IntList"));
COMPLEX(mean_dim, "mean.dim(Tensor self, int[1]? dim, " DIMS, SUM("mean.dim"));
#define SUM_OF_ALL(op)                                                         \
    "z = cast(self, dtype);"                                                   \
    "rank(self) == 1 ? z : " op "(z, dims(select.int(self, -1, 0)))"
COMPLEX(sum, "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        SUM_OF_ALL("sum.dim_IntList"));
COMPLEX(mean, "mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        SUM_OF_ALL("mean.dim"));
