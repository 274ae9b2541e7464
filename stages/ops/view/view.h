// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_VIEW_VIEW_H
#define PENSTOCK_STAGES_OPS_VIEW_VIEW_H
/* Helpers of views and copies: strides of reshapes, bounds of slices, and the
 * copy between tensors of any strides. */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"

/* Returns meta without dimension d, as `select` needs it. */
struct pst_meta pst_view_drop(const struct pst_meta *meta, unsigned d);

/* Returns n * stride, 0 on overflow. */
int64_t pst_view_step(int64_t n, int64_t stride);

/* Python's rules for x[start:end:step] with step > 0: bounds are clamped,
 * negative ones count from the end. None means the whole range. */
struct pst_slice {
    int64_t start, length, step;
};
struct pst_slice pst_view_slice(int64_t size, const struct pst_arg *start,
                                const struct pst_arg *end, int64_t step);

/*
 * Copies the elements of src to dst and converts them to its dtype; `from`
 * broadcasts to the sizes of `to`. If accumulate is true, the elements are
 * added to dst. Results do not depend on the number of threads.
 */
void pst_view_copy(struct pst_pool *pool, const struct pst_meta *from,
                   const void *src, const struct pst_meta *to, void *dst,
                   bool accumulate);
/* Fills dst with zeros. */
void pst_view_zero(const struct pst_meta *to, void *dst);
/* Reference implementation of pst_view_copy. */
void pst_view_copy_ref(const struct pst_meta *from, const void *src,
                       const struct pst_meta *to, void *dst, bool accumulate);

/*
 * dst += src, f32 or f64, where dst is a view with src's sizes whose elements
 * may overlap. Adds in row-major order for any number of threads.
 */
void pst_view_add(struct pst_pool *pool, const struct pst_meta *from,
                  const void *src, const struct pst_meta *window, void *dst);

/* Kernels that copy the elements of in[0], in row-major order, to out[0]; the
 * last one is the reference. */
#define PST_VIEW_N_COPY 2
extern const struct pst_kernel pst_view_copy_kernels[PST_VIEW_N_COPY];

/* Zeroes out[0] unless the call accumulates; then copies (or adds) src to the
 * view of out[0] that has src's sizes and the strides of `window` and begins at
 * `offset`. */
void pst_view_fill_window(const struct pst_call *c, bool reference,
                          const struct pst_operand *src,
                          const struct pst_meta *window, int64_t offset);

/* Flag, besides those of op.h, of kernels that touch operands only through
 * pst_view_copy and pst_view_zero, so that another device can run these copies
 * itself. A source of one element may be a number in host memory. */
#define PST_VIEW_IS_COPIES (1u << 17)

/* Replaces a call of pst_view_copy, or of pst_view_zero if from is NULL. */
typedef void (*pst_view_copy_fn)(void *ctx, const struct pst_meta *from,
                                 const void *src, const struct pst_meta *to,
                                 void *dst, bool accumulate);
/* Runs a kernel with flag PST_VIEW_IS_COPIES, with fn in place of each copy. fn
 * gets the addresses of the call, which are not accessed here. */
void pst_view_run_with(const struct pst_kernel *kernel,
                       const struct pst_call *call, pst_view_copy_fn fn,
                       void *ctx);

/* Defines an operator that returns a view of its operand. text: the schema
 * without "aten::" and result; how: function for inference; back: function for
 * the gradient. */
#define PST_VIEW_ROW(id, text, how, back)                                      \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor(a)",                               \
        .flags = PST_OP_VIEW | PST_OP_PASSES_ON,                               \
        .infer = how,                                                          \
        .vjp = back,                                                           \
    }

#endif
