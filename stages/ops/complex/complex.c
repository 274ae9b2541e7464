// SPDX-License-Identifier: Apache-2.0
/* Operators on complex numbers, as formulas. A complex tensor is a real one
 * with one more dimension, the last, of size 2: real and imaginary part. Where
 * an operand is complex, the importer (stages/frontend/import/pairs/complex.c)
 * replaces aten.NAME by the operator complex.NAME and converts real operands to
 * complex; operators of namespace from_real have real operands. Gradients are
 * those of the two parts, which is what PyTorch computes for a real loss. A
 * number argument that may be complex is a Tensor in these schemas, with the
 * two parts. */
#include "stages/ops/complex/rows.h"

/* --- to and from real numbers --------------------------------------------- */

FROM_REAL(view_as_complex, "view_as_complex(Tensor self) -> Tensor", "self");
FROM_REAL(complex, "complex(Tensor real, Tensor imag) -> Tensor",
          "stack(broadcast_tensors([real, imag]), -1)");
/* As in PyTorch, the gradient of abs is that of |result|: negated where abs is
 * negative, 0 where abs is 0. */
FROM_REAL(polar, "polar(Tensor abs, Tensor angle) -> Tensor",
          "m = detach(abs); n = m > 0 ? abs : (m < 0 ? m * 2 - abs : m);"
          "stack([n * cos(angle), n * sin(angle)], -1)");
COMPLEX(view_as_real, "view_as_real(Tensor self) -> Tensor", "self");
COMPLEX(real, "real(Tensor self) -> Tensor", "select.int(self, -1, 0)");
COMPLEX(imag, "imag(Tensor self) -> Tensor", "select.int(self, -1, 1)");
/* The gradient is 0 at zero, as in PyTorch. */
COMPLEX(abs, "abs(Tensor self) -> Tensor",
        ONE "none = logical_and(a == 0, b == 0);"
            "none ? abs(a) * 0.0 : hypot(none ? 1.0 : a, b)");
COMPLEX(angle, "angle(Tensor self) -> Tensor", ONE "atan2(b, a)");

/* Conversions: the importer has already made their operands complex. */
#define CONVERT(id, schema)                                                    \
    COMPLEX(id, schema, "is(dtype) ? _to_copy(self, dtype=dtype) : self")
CONVERT(to_dtype, "to.dtype(Tensor self, ScalarType dtype, "
                  "bool non_blocking=False, bool copy=False, "
                  "MemoryFormat? memory_format=None) -> Tensor");
CONVERT(to_device, "to.device(Tensor self, Device device, ScalarType dtype, "
                   "bool non_blocking=False, bool copy=False, "
                   "MemoryFormat? memory_format=None) -> Tensor");
CONVERT(to_dtype_layout,
        "to.dtype_layout(Tensor self, *, ScalarType? dtype=None, "
        "Layout? layout=None, Device? device=None, bool? pin_memory=None, "
        "bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None) -> Tensor");
CONVERT(_to_copy, "_to_copy(Tensor self, *, ScalarType? dtype=None, "
                  "Layout? layout=None, Device? device=None, "
                  "bool? pin_memory=None, bool non_blocking=False, "
                  "MemoryFormat? memory_format=None) -> Tensor");
COMPLEX(type_as, "type_as(Tensor self, Tensor other) -> Tensor",
        "_to_copy(self, dtype=dtype(other))");

/* --- arithmetic ----------------------------------------------------------- */

#define CONJUGATE(id, name)                                                    \
    COMPLEX(id, name "(Tensor self) -> Tensor", ONE "stack([a, -b], -1)")
CONJUGATE(conj, "conj");
CONJUGATE(_conj, "_conj");
CONJUGATE(conj_physical, "conj_physical");
CONJUGATE(_conj_physical, "_conj_physical");
COMPLEX(resolve_conj, "resolve_conj(Tensor self) -> Tensor", "self");
COMPLEX(resolve_neg, "resolve_neg(Tensor self) -> Tensor", "self");

#define ALPHA "*, Scalar alpha=1) -> Tensor"
COMPLEX(add_Tensor, "add.Tensor(Tensor self, Tensor other, " ALPHA,
        "self + (alpha == 1 ? other : other * alpha)");
COMPLEX(sub_Tensor, "sub.Tensor(Tensor self, Tensor other, " ALPHA,
        "self - (alpha == 1 ? other : other * alpha)");
COMPLEX(mul_Tensor, "mul.Tensor(Tensor self, Tensor other) -> Tensor",
        TWO "stack([a * c - b * d, a * d + b * c], -1)");
COMPLEX(
    div_Tensor, "div.Tensor(Tensor self, Tensor other) -> Tensor",
    TWO SCALE(
        "c",
        "d") "e = c / m; f = d / m; n = e * e + f * f; p = a / m; q = b / m;"
             "zero = n == 0; none = zero ? abs(detach(c)) : 1.0;"
             "stack([zero ? a / none : (p * e + q * f) / n, "
             "zero ? b / none : (q * e - p * f) / n], -1)");
COMPLEX(add_Scalar,
        "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ONE "stack([a + other * alpha, b], -1)");
COMPLEX(sub_Scalar,
        "sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ONE "stack([a - other * alpha, b], -1)");
COMPLEX(mul_Scalar, "mul.Scalar(Tensor self, Scalar other) -> Tensor",
        "self * other");
COMPLEX(div_Scalar, "div.Scalar(Tensor self, Scalar other) -> Tensor",
        "self / other");
COMPLEX(rsub_Tensor, "rsub.Tensor(Tensor self, Tensor other, " ALPHA,
        "other - (alpha == 1 ? self : self * alpha)");
COMPLEX(rsub_Scalar,
        "rsub.Scalar(Tensor self, Tensor other, Scalar alpha=1) -> Tensor",
        "other - (alpha == 1 ? self : self * alpha)");
COMPLEX(neg, "neg(Tensor self) -> Tensor", "-self");
COMPLEX(reciprocal, "reciprocal(Tensor self) -> Tensor",
        ONE SCALE("a", "b") "e = a / m; f = b / m; n = e * e + f * f;"
                            "stack([e / n / m, -f / n / m], -1)");
COMPLEX(exp, "exp(Tensor self) -> Tensor",
        ONE "m = exp(a); stack([m * cos(b), m * sin(b)], -1)");
