// SPDX-License-Identifier: Apache-2.0
/* Elementwise operators composed of others. */
#include "stages/ops/formula/formula.h"

#define ONE(name, formula)                                                     \
    PST_COMPOSE(name, "" #name "(Tensor self) -> Tensor", formula)
#define TWO(name, formula)                                                     \
    PST_REWRITE_FORMULA(                                                       \
        name, "aten::" #name "(Tensor self, Tensor other) -> Tensor", formula)

/* Returns self: the operand is real (stages/ops/complex/ has the operators of
 * complex ones), and negation is never lazy. */
#define SELF(name)                                                             \
    PST_COMPOSE(name, "" #name "(Tensor(a) self) -> Tensor(a)", "self")
SELF(conj);
SELF(positive);
SELF(real);
SELF(resolve_conj);
SELF(resolve_neg);
ONE(conj_physical, "self");

ONE(sgn, "sign(self)");
ONE(square, "pow.Tensor_Scalar(self, 2)");
PST_COMPOSE(max_other, "max.other(Tensor self, Tensor other) -> Tensor",
            "maximum(self, other)");
PST_COMPOSE(min_other, "min.other(Tensor self, Tensor other) -> Tensor",
            "minimum(self, other)");
PST_COMPOSE(clamp_min, "clamp_min(Tensor self, Scalar min) -> Tensor",
            "clamp(self, min)");
PST_COMPOSE(clamp_max, "clamp_max(Tensor self, Scalar max) -> Tensor",
            "clamp(self, None, max)");
PST_COMPOSE(clamp_Tensor,
            "clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> "
            "Tensor",
            "low = is(min) ? clamp_min.Tensor(self, min) : self;"
            "is(max) ? clamp_max.Tensor(low, max) : low");

/* --- powers in f64 -------------------------------------------------------- */

PST_COMPOSE(float_power_Tensor_Tensor,
            "float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            "pow.Tensor_Tensor(cast(self, f64), cast(exponent, f64))");
PST_COMPOSE(float_power_Tensor_Scalar,
            "float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
            "pow.Tensor_Scalar(cast(self, f64), exponent)");
PST_COMPOSE(float_power_Scalar,
            "float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
            "pow.Scalar(self, cast(exponent, f64))");

/* --- aliases with another order of arguments ------------------------------ */

PST_COMPOSE(special_xlogy, "special_xlogy(Tensor self, Tensor other) -> Tensor",
            "xlogy.Tensor(self, other)");
PST_COMPOSE(special_xlogy_self_scalar,
            "special_xlogy.self_scalar(Scalar self, Tensor other) -> Tensor",
            "xlogy.Scalar_Self(self, other)");
PST_COMPOSE(special_xlogy_other_scalar,
            "special_xlogy.other_scalar(Tensor self, Scalar other) -> Tensor",
            "xlogy.Scalar_Other(self, other)");

#define SCALAR_FIRST(name)                                                     \
    PST_REWRITE_FORMULA(name##_Scalar_Tensor,                                  \
                        "aten::" #name                                         \
                        ".Scalar_Tensor(Scalar self, Tensor other) -> Tensor", \
                        #name ".Scalar(other, self)")
SCALAR_FIRST(bitwise_and);
SCALAR_FIRST(bitwise_or);
SCALAR_FIRST(bitwise_xor);

#define SHIFT(id, name, to)                                                    \
    PST_REWRITE_FORMULA(id##_Tensor,                                           \
                        "aten::" name                                          \
                        ".Tensor(Tensor self, Tensor other) -> Tensor",        \
                        to ".Tensor(self, other)");                            \
    PST_REWRITE_FORMULA(id##_Scalar,                                           \
                        "aten::" name                                          \
                        ".Scalar(Tensor self, Scalar other) -> Tensor",        \
                        to ".Tensor_Scalar(self, other)")
SHIFT(__lshift__, "__lshift__", "bitwise_left_shift");
SHIFT(__rshift__, "__rshift__", "bitwise_right_shift");

/* --- predicates ----------------------------------------------------------- */

PST_COMPOSE(
    isclose,
    "isclose(Tensor self, Tensor other, "
    "float rtol=1.0000000000000001e-05, float atol=1e-08, "
    "bool equal_nan=False) -> Tensor",
    "same = self == other;"
    "nans = logical_and(isnan(self), isnan(other));"
    "known = equal_nan ? logical_or(same, nans) : same;"
    "away = abs(self - other);"
    "near = logical_and(isfinite(away), away <= abs(other * rtol) + atol);"
    "logical_or(known, near)");
PST_COMPOSE(isin_Tensor_Scalar,
            "isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, "
            "bool assume_unique=False, bool invert=False) -> Tensor",
            "invert ? elements != test_element : elements == test_element");
PST_COMPOSE(isin_Scalar_Tensor,
            "isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, "
            "bool assume_unique=False, bool invert=False) -> Tensor",
            "found = any(test_elements == element); invert ? !found : found");
