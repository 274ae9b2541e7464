// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_EAGER_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_EAGER_H
/*
 * Memory layout of new results in PyTorch (2.13, CPU, eager). In our graphs,
 * results are contiguous. But the caller of a program sees strides, and strides
 * decide whether a later reshape is a view or a copy: both need the strides
 * that PyTorch's result has.
 *
 * Copies, and tensors created like another one, keep the strides of a dense
 * operand (memory_format=preserve_format). Operators on images keep channels
 * last. Elementwise operators follow aten/src/ATen/TensorIterator.cpp: if all
 * operands are contiguous the result is; if all have the same strides it has
 * them too; otherwise its dimensions are ordered by the operands' strides. Pure
 * functions.
 */
#include "stages/graph/graph.h"

/* True if the result has the first operand's strides and offset, gaps included.
 */
bool pst_eager_keeps_window(const struct pst_op *op);
/* Memory format that a copy asks for. */
enum pst_eager_format {
    PST_EAGER_PRESERVE,
    PST_EAGER_CONTIGUOUS,
    PST_EAGER_CHANNELS_LAST, /* for images or, with rank 5, volumes */
};

/* True if operators on images treat the tensor, of four or five dimensions, as
 * channels last. Strides of dimensions of size 1 count, as in PyTorch: false if
 * all strides may also be those of a contiguous tensor. */
bool pst_eager_suggests_channels_last(const struct pst_meta *m);
/* True if the tensor is dense in channels-last order. Dimensions of size 1 do
 * not count. */
bool pst_eager_is_channels_last(const struct pst_meta *m);
/* Computes the strides of a result of `op` from its sizes and its arguments
 * (schema order, with PyTorch's strides). Returns false, and contiguous
 * strides, if there is no rule for the operator. */
bool pst_eager_strides(const struct pst_op *op, const struct pst_arg *args,
                       unsigned n_args, enum pst_eager_format format,
                       const struct pst_meta *result,
                       int64_t strides[PST_MAX_RANK]);

#endif
