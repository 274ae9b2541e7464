// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_EAGER_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_EAGER_H
/*
 * How PyTorch (2.13, CPU, eager) lays a new result out in memory. Results of
 * graphs are contiguous; who can see strides (the caller of a program, a later
 * reshape that is a view or a copy) has to see PyTorch's.
 *
 * Copies and tensors like another keep the strides of a dense operand
 * (memory_format=preserve_format). Operators on images keep channels last.
 * Elementwise operators do as aten/src/ATen/TensorIterator.cpp is documented to
 * do: operands that are all contiguous give contiguous results, such as lie
 * alike their strides, others the order of dimensions. Pure functions.
 */
#include "stages/graph/graph.h"

/* Does the result lie in a new storage as the first operand does in its own,
 * gaps and offset and all? */
bool pst_eager_keeps_window(const struct pst_op *op);
/* The memory format that a copy is asked for. */
enum pst_eager_format {
    PST_EAGER_PRESERVE,
    PST_EAGER_CONTIGUOUS,
    PST_EAGER_CHANNELS_LAST, /* of images or of volumes, by the rank */
};

/* Does a tensor of four or five dimensions suggest channels last to operators
 * on images? Not if its strides may be contiguous ones as well, as far as
 * PyTorch distinguishes them: dimensions of size 1 count. */
bool pst_eager_suggests_channels_last(const struct pst_meta *m);
/* Is it dense in that order? Dimensions of size 1 do not count. */
bool pst_eager_is_channels_last(const struct pst_meta *m);
/* Strides of a result of `op` with these arguments (schema order; the operands'
 * strides are PyTorch's) and sizes; contiguous ones and false: there is no rule
 * for that operator. */
bool pst_eager_strides(const struct pst_op *op, const struct pst_arg *args,
                       unsigned n_args, enum pst_eager_format format,
                       const struct pst_meta *result,
                       int64_t strides[PST_MAX_RANK]);

#endif
