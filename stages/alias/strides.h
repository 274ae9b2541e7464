// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_STRIDES_H
#define PENSTOCK_STAGES_ALIAS_STRIDES_H
/*
 * How PyTorch lays a new result out in memory. Results of graphs are
 * contiguous; who can see strides (the caller of a program, a later reshape
 * that is a view or a copy) has to see PyTorch's.
 *
 * Copies and tensors like another keep the strides of a dense operand
 * (memory_format=preserve_format). Operators on images keep channels last.
 * Elementwise operators do as aten/src/ATen/TensorIterator.cpp is documented to
 * do: operands that all lie alike give their strides, others the order of
 * dimensions. All other results are contiguous. Pure function.
 */
#include "stages/graph/graph.h"

/* Does the result lie in a new storage as the first operand does in its own,
 * gaps and offset and all? */
bool pst_eager_keeps_window(const struct pst_op *op);
/* Strides of a result of `op` with these arguments (schema order) and sizes.
 * False: they are those of a contiguous one. */
bool pst_eager_strides(const struct pst_op *op, const struct pst_arg *args,
                       unsigned n_args, const struct pst_meta *result,
                       int64_t strides[PST_MAX_RANK]);

#endif
