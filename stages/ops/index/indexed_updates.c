// SPDX-License-Identifier: Apache-2.0
/* Index operators composed of others. */
#include "stages/ops/formula/formula.h"

/* --- along one dimension -------------------------------------------------- */

PST_COMPOSE(index_add,
            "index_add(Tensor self, int dim, Tensor index, Tensor source, *, "
            "Scalar alpha=1) -> Tensor",
            "rank(self) == 0 ? self + reshape(source, []) * alpha : "
            "scatter_add(self, dim, along(index, source, dim), "
            "alpha == 1 ? source : cast(source * alpha, dtype(self)))");
PST_COMPOSE(index_copy,
            "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> "
            "Tensor",
            "rank(self) == 0 ? clone(reshape(source, [])) : "
            "scatter.src(self, dim, along(index, source, dim), source)");
PST_COMPOSE(index_fill_int_Scalar,
            "index_fill.int_Scalar(Tensor self, int dim, Tensor index, "
            "Scalar value) -> Tensor",
            "scatter.value(self, dim, wrapped(along(index, self, dim), "
            "size(self, dim)), value)");
PST_COMPOSE(index_fill_int_Tensor,
            "index_fill.int_Tensor(Tensor self, int dim, Tensor index, "
            "Tensor value) -> Tensor",
            "at = wrapped(along(index, self, dim), size(self, dim));"
            "hit = scatter.value(zeros_like(self, dtype=bool), dim, at, True);"
            "hit ? cast(value, dtype(self)) : self");
PST_COMPOSE(index_reduce,
            "index_reduce(Tensor self, int dim, Tensor index, Tensor source, "
            "str reduce, *, bool include_self=True) -> Tensor",
            "scatter_reduce.two(self, dim, along(index, source, dim), source, "
            "reduce, include_self=include_self)");
/* Maps indices that count from the end, -size..-1, to 0..size-1. */
PST_REWRITE_FORMULA(wrapped,
                    "penstock::wrapped(Tensor index, int size) -> Tensor",
                    "index < 0 ? index + size : index");

PST_COMPOSE(scatter_reduce_name,
            "scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, "
            "str reduce) -> Tensor",
            "scatter_reduce.two(self, dim, index, src, "
            "same(reduce, 'add') ? 'sum' : 'prod')");
PST_COMPOSE(scatter_value_reduce,
            "scatter.value_reduce(Tensor self, int dim, Tensor index, "
            "Scalar value, *, str reduce) -> Tensor",
            "scatter_reduce.two(self, dim, index, "
            "full(sizes(index), value, dtype=dtype(self)), "
            "same(reduce, 'add') ? 'sum' : 'prod')");

/* --- flat ----------------------------------------------------------------- */

PST_COMPOSE(take, "take(Tensor self, Tensor index) -> Tensor",
            "index.Tensor(reshape(self, [-1]), [index])");
PST_COMPOSE(
    put,
    "put(Tensor self, Tensor index, Tensor source, bool accumulate=False) "
    "-> Tensor",
    "shaped(index_put(reshape(self, [-1]), [reshape(index, [-1])], "
    "reshape(source, [-1]), accumulate), self)");
PST_COMPOSE(
    take_along_dim,
    "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
    "is(dim) ? gather(spread(self, indices, dim), dim, "
    "wrapped(spread(indices, self, dim), size(self, dim))) : "
    "gather(reshape(self, [-1]), 0, "
    "wrapped(reshape(indices, [-1]), numel(self)))");

/* --- masks ---------------------------------------------------------------- */

PST_COMPOSE(_unsafe_masked_index,
            "_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, "
            "Scalar fill) -> Tensor",
            "mask ? index.Tensor(self, clamped(indices, self)) : fill");
PST_COMPOSE(_unsafe_masked_index_put_accumulate,
            "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, "
            "Tensor?[] indices, Tensor values) -> Tensor",
            "index_put(self, clamped(indices, self), mask ? values : 0, True)");
