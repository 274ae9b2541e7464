// SPDX-License-Identifier: Apache-2.0
/* Linear algebra operators that are formulas of others. */
#include "stages/ops/formula/formula.h"

/* --- beta self + alpha product; beta 0 ignores NaN in self ---------------- */

#define SCALED(product)                                                        \
    "p = " product "; q = alpha == 1 ? p : p * alpha;"                         \
    "beta == 0 ? expand_as(q, q) : (beta == 1 ? self : self * beta) + q"
#define NUMBERS "*, Scalar beta=1, Scalar alpha=1) -> Tensor"

PST_COMPOSE(addmv, "addmv(Tensor self, Tensor mat, Tensor vec, " NUMBERS,
            SCALED("mv(mat, vec)"));
PST_COMPOSE(addr, "addr(Tensor self, Tensor vec1, Tensor vec2, " NUMBERS,
            SCALED("unsqueeze(vec1, 1) * vec2"));
PST_COMPOSE(addbmm,
            "addbmm(Tensor self, Tensor batch1, Tensor batch2, " NUMBERS,
            SCALED("sum.dim_IntList(bmm(batch1, batch2), [0])"));

/* --- vectors -------------------------------------------------------------- */

PST_COMPOSE(outer, "outer(Tensor self, Tensor vec2) -> Tensor",
            "unsqueeze(self, 1) * vec2");
PST_COMPOSE(vdot, "vdot(Tensor self, Tensor other) -> Tensor",
            "dot(self, other)");
PST_COMPOSE(linalg_vecdot,
            "linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
            "sum.dim_IntList(x * y, [dim])");
PST_COMPOSE(
    inner, "inner(Tensor self, Tensor other) -> Tensor",
    "rank(self) == 0 ? self * other : (rank(other) == 0 ? self * other : "
    "tensordot(self, other, [-1], [-1]))");

/* Component i of a x b is a_(i+1) b_(i+2) - a_(i+2) b_(i+1). */
PST_COMPOSE(linalg_cross,
            "linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
            "p = broadcast_tensors([self, other]);"
            "size(p[0], dim) == 3 ? "
            "roll(p[0], [-1], [dim]) * roll(p[1], [-2], [dim]) - "
            "roll(p[0], [-2], [dim]) * roll(p[1], [-1], [dim]) : "
            "fail('the dimension must have 3 elements')");

/* --- powers of numbers ---------------------------------------------------- */

PST_COMPOSE(linalg_vander,
            "linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor",
            "pow.Tensor_Tensor(unsqueeze(x, -1), "
            "arange(is(N) ? N : size(x, -1), dtype=i64))");
PST_COMPOSE(vander,
            "vander(Tensor x, int? N=None, bool increasing=False) -> Tensor",
            "y = linalg_vander(x, N=N); increasing ? y : flip(y, [-1])");

/* --- distances between rows -----------------------------------------------
 *
 * cdist always computes distances from differences, whatever compute_mode says:
 * the expanded squares that PyTorch uses for more than 25 rows cancel where
 * rows are close. */

PST_COMPOSE(
    cdist,
    "cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> "
    "Tensor",
    "distances(x1, x2, p)");
PST_COMPOSE(
    _cdist_forward,
    "_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> "
    "Tensor",
    "distances(x1, x2, p)");
PST_COMPOSE(_euclidean_dist, "_euclidean_dist(Tensor x1, Tensor x2) -> Tensor",
            "distances(x1, x2, 2)");

/* --- three operands ------------------------------------------------------- */

PST_COMPOSE(bilinear,
            "bilinear(Tensor input1, Tensor input2, Tensor weight, "
            "Tensor? bias=None) -> Tensor",
            "y = einsum('...i,oij,...j->...o', [input1, weight, input2]);"
            "is(bias) ? y + bias : y");

/* --- groups of rows, each with a matrix of its own ------------------------ */

PST_REWRITE_FORMULA(
    grouped_mm_fallback,
    "transformers::grouped_mm_fallback(Tensor input, Tensor weight, "
    "Tensor offs) -> Tensor",
    "grouped_product(input, weight, offs)");
/* The groups are rows of self, columns of mat2, parts of the summed dimension,
 * or whole matrices, depending on the ranks. */
PST_COMPOSE(
    _grouped_mm,
    "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, "
    "Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor",
    "columns = transpose.int(grouped_product(transpose.int(mat2, 0, 1), "
    "transpose.int(self, 1, 2), offs), 0, 1);"
    "p = rank(self) == 3 ? (rank(mat2) == 3 ? bmm(self, mat2) : columns) "
    ": (rank(mat2) == 3 ? grouped_product(self, mat2, offs) "
    ": grouped_outer(self, mat2, offs));"
    "cast(is(bias) ? p + bias : p, out_dtype)");
