// SPDX-License-Identifier: Apache-2.0
/* Views and rearrangements composed of other operators. */
#include "stages/ops/formula/formula.h"

/* --- copies of views ------------------------------------------------------ */

PST_COMPOSE(alias_copy, "alias_copy(Tensor self) -> Tensor", "clone(self)");
PST_COMPOSE(detach_copy, "detach_copy(Tensor self) -> Tensor",
            "clone(detach(self))");
const struct pst_op pst_op_as_strided_copy = {
    .schema = "aten::as_strided_copy(Tensor self, SymInt[] size, "
              "SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
    .flags = PST_OP_STORAGE,
    .rewrite = pst_rewrite_formula,
    .formula = "clone(as_strided(self, size, stride, storage_offset))",
};
PST_COMPOSE(
    diagonal_copy,
    "diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> "
    "Tensor",
    "clone(diagonal(self, offset, dim1, dim2))");
PST_COMPOSE(
    expand_copy,
    "expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> "
    "Tensor",
    "clone(expand(self, size))");
PST_COMPOSE(narrow_copy,
            "narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> "
            "Tensor",
            "clone(narrow(self, dim, start, length))");
PST_COMPOSE(permute_copy, "permute_copy(Tensor self, int[] dims) -> Tensor",
            "clone(permute(self, dims))");
PST_COMPOSE(select_copy_int,
            "select_copy.int(Tensor self, int dim, SymInt index) -> Tensor",
            "clone(select.int(self, dim, index))");
PST_COMPOSE(slice_copy_Tensor,
            "slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, "
            "SymInt? end=None, SymInt step=1) -> Tensor",
            "clone(slice.Tensor(self, dim, start, end, step))");
PST_COMPOSE(split_copy_Tensor,
            "split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> "
            "Tensor[]",
            "clone(split.Tensor(self, split_size, dim))");
PST_COMPOSE(
    split_with_sizes_copy,
    "split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) "
    "-> Tensor[]",
    "clone(split_with_sizes(self, split_sizes, dim))");
PST_COMPOSE(squeeze_copy, "squeeze_copy(Tensor self) -> Tensor",
            "clone(squeeze(self))");
PST_COMPOSE(squeeze_copy_dim,
            "squeeze_copy.dim(Tensor self, int dim) -> Tensor",
            "clone(squeeze.dim(self, dim))");
PST_COMPOSE(squeeze_copy_dims,
            "squeeze_copy.dims(Tensor self, int[] dim) -> Tensor",
            "clone(squeeze.dims(self, dim))");
PST_COMPOSE(t_copy, "t_copy(Tensor self) -> Tensor", "clone(t(self))");
PST_COMPOSE(transpose_copy_int,
            "transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor",
            "clone(transpose.int(self, dim0, dim1))");
PST_COMPOSE(unbind_copy_int,
            "unbind_copy.int(Tensor self, int dim=0) -> Tensor[]",
            "clone(unbind.int(self, dim))");
PST_COMPOSE(
    unfold_copy,
    "unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
    "clone(unfold(self, dimension, size, step))");
PST_COMPOSE(unsqueeze_copy, "unsqueeze_copy(Tensor self, int dim) -> Tensor",
            "clone(unsqueeze(self, dim))");
PST_COMPOSE(view_copy, "view_copy(Tensor self, SymInt[] size) -> Tensor",
            "clone(view(self, size))");
PST_COMPOSE(view_copy_dtype,
            "view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor",
            "clone(view.dtype(self, dtype))");

/* --- aliases, other arguments --------------------------------------------- */

PST_COMPOSE(_reshape_alias,
            "_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> "
            "Tensor(a)",
            "view(self, size)");
PST_COMPOSE(adjoint, "adjoint(Tensor(a) self) -> Tensor(a)",
            "transpose.int(self, -2, -1)");
PST_COMPOSE(matrix_H, "matrix_H(Tensor(a) self) -> Tensor(a)",
            "transpose.int(self, -2, -1)");
PST_COMPOSE(mH, "mH(Tensor(a) self) -> Tensor(a)",
            "transpose.int(self, -2, -1)");
PST_COMPOSE(ravel, "ravel(Tensor(a) self) -> Tensor(a)",
            "view(contiguous(self), [-1])");
PST_COMPOSE(linalg_diagonal,
            "linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, "
            "int dim2=-1) -> Tensor(a)",
            "diagonal(A, offset, dim1, dim2)");
PST_COMPOSE(trace, "trace(Tensor self) -> Tensor", "sum(diagonal(self))");
PST_COMPOSE(channel_shuffle,
            "channel_shuffle(Tensor self, SymInt groups) -> Tensor",
            "each = size(self, 1) // groups;"
            "split = unflatten.int(self, 1, [groups, each]);"
            "groups == 1 ? clone(self) : each == 1 ? clone(self) : "
            "flatten.using_ints(transpose.int(split, 1, 2), 1, 2)");

/* --- flips ---------------------------------------------------------------- */

PST_COMPOSE(fliplr, "fliplr(Tensor self) -> Tensor", "flip(self, [1])");
PST_COMPOSE(flipud, "flipud(Tensor self) -> Tensor", "flip(self, [0])");
PST_COMPOSE(
    rot90, "rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
    "turns = k % 4;"
    "turns == 0 ? clone(self) : turns == 2 ? flip(self, dims) : "
    "transpose.int(flip(self, [turns == 1 ? dims[1] : dims[0]]), dims[0], "
    "dims[1])");

/* --- at least a given number of dimensions -------------------------------- */

PST_COMPOSE(atleast_1d, "atleast_1d(Tensor self) -> Tensor",
            "rank(self) < 1 ? unsqueeze(self, 0) : self");
PST_COMPOSE(atleast_2d, "atleast_2d(Tensor self) -> Tensor",
            "rank(self) < 2 ? unsqueeze(atleast_1d(self), 0) : self");
PST_COMPOSE(atleast_3d, "atleast_3d(Tensor self) -> Tensor",
            "rank(self) < 3 ? unsqueeze(atleast_2d(self), 2) : self");
PST_COMPOSE(atleast_1d_Sequence,
            "atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]",
            "atleast_1d(tensors)");
PST_COMPOSE(atleast_2d_Sequence,
            "atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]",
            "atleast_2d(tensors)");
PST_COMPOSE(atleast_3d_Sequence,
            "atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]",
            "atleast_3d(tensors)");

/* --- stacks --------------------------------------------------------------- */

PST_COMPOSE(
    hstack, "hstack(Tensor[] tensors) -> Tensor",
    "parts = atleast_1d(tensors); cat(parts, rank(parts[0]) == 1 ? 0 : 1)");
PST_COMPOSE(vstack, "vstack(Tensor[] tensors) -> Tensor",
            "cat(atleast_2d(tensors), 0)");
PST_COMPOSE(dstack, "dstack(Tensor[] tensors) -> Tensor",
            "cat(atleast_3d(tensors), 2)");
PST_REWRITE_FORMULA(as_column, "penstock::as_column(Tensor self) -> Tensor",
                    "rank(self) < 2 ? reshape(self, [-1, 1]) : self");
PST_COMPOSE(column_stack, "column_stack(Tensor[] tensors) -> Tensor",
            "cat(as_column(tensors), 1)");
PST_COMPOSE(
    cartesian_prod, "cartesian_prod(Tensor[] tensors) -> Tensor",
    "len(tensors) == 1 ? tensors[0] : "
    "stack(reshape(meshgrid.indexing(tensors, indexing='ij'), [-1]), 1)");

/* --- splits --------------------------------------------------------------- */

#define SPLITS(name, axis)                                                     \
    PST_COMPOSE(name##_int,                                                    \
                #name                                                          \
                ".int(Tensor(a -> *) self, int sections) -> Tensor(a)[]",      \
                "tensor_split.sections(self, sections, " axis ")");            \
    PST_COMPOSE(name##_array,                                                  \
                #name                                                          \
                ".array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]",   \
                "tensor_split.indices(self, indices, " axis ")")
SPLITS(hsplit, "rank(self) == 1 ? 0 : 1");
SPLITS(vsplit, "0");
SPLITS(dsplit, "2");

/* --- diagonals ------------------------------------------------------------ */

PST_COMPOSE(diag, "diag(Tensor self, int diagonal=0) -> Tensor",
            "rank(self) == 1 ? diag_embed(self, diagonal, 0, 1) : "
            "diagonal_copy(self, diagonal)");
PST_COMPOSE(diagflat, "diagflat(Tensor self, int offset=0) -> Tensor",
            "diag(reshape(self, [-1]), offset)");

/* --- repetitions ---------------------------------------------------------- */

PST_COMPOSE(repeat_interleave_self_Tensor,
            "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, "
            "int? dim=None, *, SymInt? output_size=None) -> Tensor",
            "x = is(dim) ? self : reshape(self, [-1]);"
            "index = searchsorted.Tensor(cumsum(repeats, 0), "
            "arange(output_size, dtype=i64), right=True);"
            "is(output_size) ? index_select(x, is(dim) ? dim : 0, index) : "
            "fail('its size depends on the data: give output_size')");
