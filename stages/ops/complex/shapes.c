// SPDX-License-Identifier: Apache-2.0
/* Selection, indexing and shape operators for complex numbers, where the real
 * operator would also change the last dimension. complex.c describes the
 * layout. */
#include "stages/ops/complex/rows.h"

/* --- selection ------------------------------------------------------------ */

#define WHERE "unsqueeze(condition, -1) ? self : other"
COMPLEX(where_self,
        "where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
        WHERE);
COMPLEX(where_ScalarSelf,
        "where.ScalarSelf(Tensor condition, Tensor self, Tensor other) -> "
        "Tensor",
        WHERE);
COMPLEX(where_ScalarOther,
        "where.ScalarOther(Tensor condition, Tensor self, Tensor other) -> "
        "Tensor",
        WHERE);
COMPLEX(where_Scalar,
        "where.Scalar(Tensor condition, Tensor self, Tensor other) -> Tensor",
        WHERE);
#define MASKED "unsqueeze(mask, -1) ? cast(value, dtype(self)) : self"
COMPLEX(masked_fill_Scalar,
        "masked_fill.Scalar(Tensor self, Tensor mask, Tensor value) -> Tensor",
        MASKED);
COMPLEX(masked_fill_Tensor,
        "masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
        MASKED);

/* --- both parts ---------------------------------------------------------- */

#define BOTH(op, more) ONE "stack([" op "(a" more "), " op "(b" more ")], -1)"
COMPLEX(tril, "tril(Tensor self, SymInt diagonal=0) -> Tensor",
        BOTH("tril", ", diagonal"));
COMPLEX(triu, "triu(Tensor self, SymInt diagonal=0) -> Tensor",
        BOTH("triu", ", diagonal"));
COMPLEX(trace, "trace(Tensor self) -> Tensor", BOTH("trace", ""));
COMPLEX(diag, "diag(Tensor self, int diagonal=0) -> Tensor",
        BOTH("diag", ", diagonal"));
COMPLEX(diag_embed,
        "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> "
        "Tensor",
        BOTH("diag_embed", ", offset, dim1, dim2"));
COMPLEX(gather,
        "gather(Tensor self, int dim, Tensor index, *, "
        "bool sparse_grad=False) -> Tensor",
        BOTH("gather", ", dim, index"));
COMPLEX(constant_pad_nd,
        "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
        ONE "stack([constant_pad_nd(a, pad, value), "
            "constant_pad_nd(b, pad, 0)], -1)");

COMPLEX(pad,
        "pad(Tensor self, SymInt[] pad, str mode='constant', "
        "float? value=None) -> Tensor",
        ONE "plain = same(mode, 'constant');"
            "stack([pad(a, pad, mode, value), "
            "pad(b, pad, mode, plain ? 0.0 : None)], -1)");

#define SCATTER(op, x)                                                         \
    ONE "x = " x "; c = select.int(x, -1, 0); d = select.int(x, -1, 1);"       \
        "stack([" op "(a, dim, index, c), " op "(b, dim, index, d)], -1)"
COMPLEX(scatter_src,
        "scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
        SCATTER("scatter.src", "src"));
COMPLEX(scatter_value,
        "scatter.value(Tensor self, int dim, Tensor index, Tensor value) -> "
        "Tensor",
        ONE "c = expand_as(select.int(value, -1, 0), index);"
            "d = expand_as(select.int(value, -1, 1), index);"
            "stack([scatter.src(a, dim, index, c), "
            "scatter.src(b, dim, index, d)], -1)");
COMPLEX(diagonal_scatter,
        "diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, "
        "int dim2=1) -> Tensor",
        ONE "c = select.int(src, -1, 0); d = select.int(src, -1, 1);"
            "stack([diagonal_scatter(a, c, offset, dim1, dim2), "
            "diagonal_scatter(b, d, offset, dim1, dim2)], -1)");
COMPLEX(scatter_add,
        "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
        SCATTER("scatter_add", "src"));

/* --- views --------------------------------------------------------------- */

#define BEHIND(dim) "(" dim " < 0 ? " dim " - 1 : " dim ")"
/* exchanges the dimension of the two parts and the dimension before it */
#define TO_FRONT(x) "transpose.int(" x ", -2, -1)"
COMPLEX(diagonal,
        "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
        "i = " BEHIND("dim1") "; j = " BEHIND("dim2") ";" TO_FRONT(
            "diagonal(self, offset, i, j)"));
COMPLEX(unfold,
        "unfold(Tensor self, int dimension, SymInt size, SymInt step) -> "
        "Tensor",
        "i = " BEHIND("dimension") ";" TO_FRONT("unfold(self, i, size, step)"));
#define TURNED "(rank(self) < 3 ? alias(self) : transpose.int(self, 0, 1))"
COMPLEX(t, "t(Tensor self) -> Tensor", TURNED);
COMPLEX(numpy_T, "numpy_T(Tensor self) -> Tensor",
        "rank(self) > 3 ? fail('of more than two dimensions') : " TURNED);
COMPLEX(mT, "mT(Tensor self) -> Tensor", "transpose.int(self, -3, -2)");
#define ADJOINT "complex.conj(transpose.int(self, -3, -2))"
COMPLEX(mH, "mH(Tensor self) -> Tensor", ADJOINT);
COMPLEX(matrix_H, "matrix_H(Tensor self) -> Tensor", ADJOINT);
COMPLEX(adjoint, "adjoint(Tensor self) -> Tensor", ADJOINT);
COMPLEX(ravel, "ravel(Tensor self) -> Tensor",
        "rank(self) == 1 ? unsqueeze(self, 0) : flatten.using_ints(self, 0, "
        "-2)");
#define ATLEAST_1 "(rank(self) < 2 ? unsqueeze(self, 0) : self)"
COMPLEX(atleast_1d, "atleast_1d(Tensor self) -> Tensor", ATLEAST_1);
COMPLEX(atleast_2d, "atleast_2d(Tensor self) -> Tensor",
        "x = " ATLEAST_1 "; rank(x) < 3 ? unsqueeze(x, 0) : x");

/* Without dims, roll shifts the numbers in memory order. */
COMPLEX(roll, "roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
        "len(dims) > 0 ? roll(self, shifts, dims) : "
        "shaped(roll(reshape(self, [-1, 2]), shifts, [0]), self)");

/* --- joins ---------------------------------------------------------------- */

COMPLEX(hstack, "hstack(Tensor[] tensors) -> Tensor",
        "n = rank(tensors[0]);"
        "n == 1 ? stack(tensors, 0) : cat(tensors, n == 2 ? 0 : 1)");
COMPLEX(vstack, "vstack(Tensor[] tensors) -> Tensor",
        "n = rank(tensors[0]);"
        "n == 1 ? unsqueeze(stack(tensors, 0), 1) : "
        "n == 2 ? stack(tensors, 0) : cat(tensors, 0)");
COMPLEX(dstack, "dstack(Tensor[] tensors) -> Tensor",
        "n = rank(tensors[0]);"
        "n == 1 ? unsqueeze(unsqueeze(stack(tensors, 0), 0), 0) : "
        "n == 2 ? unsqueeze(stack(tensors, 1), 0) : "
        "n == 3 ? stack(tensors, 2) : cat(tensors, 2)");
COMPLEX(column_stack, "column_stack(Tensor[] tensors) -> Tensor",
        "n = rank(tensors[0]);"
        "n == 1 ? unsqueeze(stack(tensors, 0), 0) : "
        "n == 2 ? stack(tensors, 1) : cat(tensors, 1)");
