// SPDX-License-Identifier: Apache-2.0
/* Matmuls of complex matrices and vectors; complex.c describes the layout. */
#include "stages/ops/complex/rows.h"

/* A bilinear operator on complex operands consists of four real ones. */
#define PRODUCT(op)                                                            \
    "stack([" op "(a, c) - " op "(b, d), " op "(a, d) + " op "(b, c)], -1)"
COMPLEX(matmul, "matmul(Tensor self, Tensor other) -> Tensor",
        TWO PRODUCT("matmul"));
COMPLEX(mm, "mm(Tensor self, Tensor mat2) -> Tensor",
        "other = mat2;" TWO PRODUCT("mm"));
COMPLEX(bmm, "bmm(Tensor self, Tensor mat2) -> Tensor",
        "other = mat2;" TWO PRODUCT("bmm"));
COMPLEX(mv, "mv(Tensor self, Tensor vec) -> Tensor",
        "other = vec;" TWO PRODUCT("mv"));
COMPLEX(dot, "dot(Tensor self, Tensor tensor) -> Tensor",
        "other = tensor;" TWO PRODUCT("dot"));
COMPLEX(vdot, "vdot(Tensor self, Tensor other) -> Tensor",
        "complex.dot(complex.conj(self), other)");
COMPLEX(inner, "inner(Tensor self, Tensor other) -> Tensor",
        TWO PRODUCT("inner"));
COMPLEX(outer, "outer(Tensor self, Tensor vec2) -> Tensor",
        "complex.mul(unsqueeze(self, 1), unsqueeze(vec2, 0))");
COMPLEX(linalg_vecdot,
        "linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
        "p = complex.mul(complex.conj(x), y);"
        "stack([sum.dim_IntList(select.int(p, -1, 0), [dim]), "
        "sum.dim_IntList(select.int(p, -1, 1), [dim])], -1)");
COMPLEX(tensordot,
        "tensordot(Tensor self, Tensor other, int[] dims_self, "
        "int[] dims_other) -> Tensor",
        TWO "stack([tensordot(a, c, dims_self, dims_other) - "
            "tensordot(b, d, dims_self, dims_other), "
            "tensordot(a, d, dims_self, dims_other) + "
            "tensordot(b, c, dims_self, dims_other)], -1)");
COMPLEX(linear,
        "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
        "self = input; other = weight;" TWO
        "p = " PRODUCT("linear") ";"
                                 "is(bias) ? p + bias : p");

/* Computes beta self + alpha p; if beta is 0, self is not read, so a NaN in it
 * has no effect. */
#define SUM(p)                                                                 \
    "p = " p "; q = alpha == 1 ? p : p * alpha;"                               \
    "beta == 0 ? q : (beta == 1 ? self : self * beta) + q"
#define FACTORS "*, Scalar beta=1, Scalar alpha=1) -> Tensor"
COMPLEX(addmm, "addmm(Tensor self, Tensor mat1, Tensor mat2, " FACTORS,
        SUM("complex.mm(mat1, mat2)"));
COMPLEX(addmv, "addmv(Tensor self, Tensor mat, Tensor vec, " FACTORS,
        SUM("complex.mv(mat, vec)"));
COMPLEX(addr, "addr(Tensor self, Tensor vec1, Tensor vec2, " FACTORS,
        SUM("complex.outer(vec1, vec2)"));
COMPLEX(baddbmm, "baddbmm(Tensor self, Tensor batch1, Tensor batch2, " FACTORS,
        SUM("complex.bmm(batch1, batch2)"));
COMPLEX(addbmm, "addbmm(Tensor self, Tensor batch1, Tensor batch2, " FACTORS,
        SUM("sum.dim_IntList(complex.bmm(batch1, batch2), [0])"));

#define VALUE "*, Scalar value=1) -> Tensor"
COMPLEX(addcmul, "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, " VALUE,
        "p = complex.mul(tensor1, tensor2);"
        "self + (value == 1 ? p : p * value)");
COMPLEX(addcdiv, "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, " VALUE,
        "p = complex.div(tensor1, tensor2);"
        "self + (value == 1 ? p : p * value)");
COMPLEX(lerp_Scalar,
        "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
        "self + (end - self) * weight");
COMPLEX(lerp_Tensor,
        "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
        "self + complex.mul(end - self, weight)");
