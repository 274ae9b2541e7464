// SPDX-License-Identifier: Apache-2.0
/* Views and rearrangements that are compositions of others. */
#include "stages/ops/formula/formula.h"

#define COMPOSE(id, schema, formula)                                           \
    PST_REWRITE_FORMULA(id, "aten::" schema, formula)

/* --- copies of views ------------------------------------------------------ */

COMPOSE(alias_copy, "alias_copy(Tensor self) -> Tensor", "clone(self)");
COMPOSE(detach_copy, "detach_copy(Tensor self) -> Tensor",
        "clone(detach(self))");
const struct pst_op pst_op_as_strided_copy = {
    .schema = "aten::as_strided_copy(Tensor self, SymInt[] size, "
              "SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
    .flags = PST_OP_STORAGE,
    .rewrite = pst_rewrite_formula,
    .formula = "clone(as_strided(self, size, stride, storage_offset))",
};
COMPOSE(diagonal_copy,
        "diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> "
        "Tensor",
        "clone(diagonal(self, offset, dim1, dim2))");
COMPOSE(expand_copy,
        "expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> "
        "Tensor",
        "clone(expand(self, size))");
COMPOSE(narrow_copy,
        "narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> "
        "Tensor",
        "clone(narrow(self, dim, start, length))");
COMPOSE(permute_copy, "permute_copy(Tensor self, int[] dims) -> Tensor",
        "clone(permute(self, dims))");
COMPOSE(select_copy_int,
        "select_copy.int(Tensor self, int dim, SymInt index) -> Tensor",
        "clone(select.int(self, dim, index))");
COMPOSE(slice_copy_Tensor,
        "slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, "
        "SymInt? end=None, SymInt step=1) -> Tensor",
        "clone(slice.Tensor(self, dim, start, end, step))");
COMPOSE(split_copy_Tensor,
        "split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> "
        "Tensor[]",
        "clone(split.Tensor(self, split_size, dim))");
COMPOSE(split_with_sizes_copy,
        "split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) "
        "-> Tensor[]",
        "clone(split_with_sizes(self, split_sizes, dim))");
COMPOSE(squeeze_copy, "squeeze_copy(Tensor self) -> Tensor",
        "clone(squeeze(self))");
COMPOSE(squeeze_copy_dim, "squeeze_copy.dim(Tensor self, int dim) -> Tensor",
        "clone(squeeze.dim(self, dim))");
COMPOSE(squeeze_copy_dims,
        "squeeze_copy.dims(Tensor self, int[] dim) -> Tensor",
        "clone(squeeze.dims(self, dim))");
COMPOSE(t_copy, "t_copy(Tensor self) -> Tensor", "clone(t(self))");
COMPOSE(transpose_copy_int,
        "transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor",
        "clone(transpose.int(self, dim0, dim1))");
COMPOSE(unbind_copy_int, "unbind_copy.int(Tensor self, int dim=0) -> Tensor[]",
        "clone(unbind.int(self, dim))");
COMPOSE(unfold_copy,
        "unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
        "clone(unfold(self, dimension, size, step))");
COMPOSE(unsqueeze_copy, "unsqueeze_copy(Tensor self, int dim) -> Tensor",
        "clone(unsqueeze(self, dim))");
COMPOSE(view_copy, "view_copy(Tensor self, SymInt[] size) -> Tensor",
        "clone(view(self, size))");
COMPOSE(view_copy_dtype,
        "view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor",
        "clone(view.dtype(self, dtype))");

/* --- other names, other arguments ----------------------------------------- */

COMPOSE(_reshape_alias,
        "_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> "
        "Tensor(a)",
        "view(self, size)");
COMPOSE(adjoint, "adjoint(Tensor(a) self) -> Tensor(a)",
        "transpose.int(self, -2, -1)");
COMPOSE(matrix_H, "matrix_H(Tensor(a) self) -> Tensor(a)",
        "transpose.int(self, -2, -1)");
COMPOSE(mH, "mH(Tensor(a) self) -> Tensor(a)", "transpose.int(self, -2, -1)");
COMPOSE(ravel, "ravel(Tensor(a) self) -> Tensor(a)",
        "view(contiguous(self), [-1])");
COMPOSE(linalg_diagonal,
        "linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, "
        "int dim2=-1) -> Tensor(a)",
        "diagonal(A, offset, dim1, dim2)");
COMPOSE(trace, "trace(Tensor self) -> Tensor", "sum(diagonal(self))");
COMPOSE(channel_shuffle,
        "channel_shuffle(Tensor self, SymInt groups) -> Tensor",
        "split = unflatten.int(self, 1, [groups, size(self, 1) // groups]);"
        "flatten.using_ints(transpose.int(split, 1, 2), 1, 2)");

/* --- flips ---------------------------------------------------------------- */

COMPOSE(fliplr, "fliplr(Tensor self) -> Tensor", "flip(self, [1])");
COMPOSE(flipud, "flipud(Tensor self) -> Tensor", "flip(self, [0])");
COMPOSE(rot90, "rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
        "turns = k % 4;"
        "turns == 0 ? clone(self) : turns == 2 ? flip(self, dims) : "
        "transpose.int(flip(self, [turns == 1 ? dims[1] : dims[0]]), dims[0], "
        "dims[1])");

/* --- at least so many dimensions ------------------------------------------ */

COMPOSE(atleast_1d, "atleast_1d(Tensor self) -> Tensor",
        "rank(self) < 1 ? unsqueeze(self, 0) : self");
COMPOSE(atleast_2d, "atleast_2d(Tensor self) -> Tensor",
        "rank(self) < 2 ? unsqueeze(atleast_1d(self), 0) : self");
COMPOSE(atleast_3d, "atleast_3d(Tensor self) -> Tensor",
        "rank(self) < 3 ? unsqueeze(atleast_2d(self), 2) : self");
COMPOSE(atleast_1d_Sequence,
        "atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]",
        "atleast_1d(tensors)");
COMPOSE(atleast_2d_Sequence,
        "atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]",
        "atleast_2d(tensors)");
COMPOSE(atleast_3d_Sequence,
        "atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]",
        "atleast_3d(tensors)");

/* --- stacks --------------------------------------------------------------- */

COMPOSE(hstack, "hstack(Tensor[] tensors) -> Tensor",
        "parts = atleast_1d(tensors); cat(parts, rank(parts[0]) == 1 ? 0 : 1)");
COMPOSE(vstack, "vstack(Tensor[] tensors) -> Tensor",
        "cat(atleast_2d(tensors), 0)");
COMPOSE(dstack, "dstack(Tensor[] tensors) -> Tensor",
        "cat(atleast_3d(tensors), 2)");
PST_REWRITE_FORMULA(as_column, "penstock::as_column(Tensor self) -> Tensor",
                    "rank(self) < 2 ? reshape(self, [-1, 1]) : self");
COMPOSE(column_stack, "column_stack(Tensor[] tensors) -> Tensor",
        "cat(as_column(tensors), 1)");
COMPOSE(cartesian_prod, "cartesian_prod(Tensor[] tensors) -> Tensor",
        "len(tensors) == 1 ? tensors[0] : "
        "stack(reshape(meshgrid.indexing(tensors, indexing='ij'), [-1]), 1)");

/* --- splits --------------------------------------------------------------- */

#define SPLITS(name, axis)                                                     \
    COMPOSE(name##_int,                                                        \
            #name ".int(Tensor(a -> *) self, int sections) -> Tensor(a)[]",    \
            "tensor_split.sections(self, sections, " axis ")");                \
    COMPOSE(name##_array,                                                      \
            #name ".array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]", \
            "tensor_split.indices(self, indices, " axis ")")
SPLITS(hsplit, "rank(self) == 1 ? 0 : 1");
SPLITS(vsplit, "0");
SPLITS(dsplit, "2");

/* --- diagonals ------------------------------------------------------------ */

COMPOSE(diag, "diag(Tensor self, int diagonal=0) -> Tensor",
        "rank(self) == 1 ? diag_embed(self, diagonal, 0, 1) : "
        "diagonal_copy(self, diagonal)");
COMPOSE(diagflat, "diagflat(Tensor self, int offset=0) -> Tensor",
        "diag(reshape(self, [-1]), offset)");

/* --- repetitions ---------------------------------------------------------- */

COMPOSE(repeat_interleave_self_Tensor,
        "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, "
        "int? dim=None, *, SymInt? output_size=None) -> Tensor",
        "x = is(dim) ? self : reshape(self, [-1]);"
        "index = searchsorted.Tensor(cumsum(repeats, 0), "
        "arange(output_size, dtype=i64), right=True);"
        "is(output_size) ? index_select(x, is(dim) ? dim : 0, index) : "
        "fail('its size depends on the data: give output_size')");
