// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_CONV_H
#define PENSTOCK_STAGES_OPS_CONV_CONV_H
/*
 * All convolutions are correlations between three tensors
 *     y[n, o, p] =
 *         sum over i, k of x[n, i, p * stride - pad + k * dil] w[o, i, k]
 * with x (N, I, in...), y (N, O, out...), w (O, I / groups, k...) and one to
 * three spatial dimensions, stored as three: missing ones come first, with size
 * 1. Forward passes and gradients compute ("fill") y, x or w from the other
 * two; a transposed convolution computes x.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"

#define PST_CONV_DIMS 3

struct pst_conv {
    unsigned dims;             /* spatial dimensions, 1..3 */
    int64_t n, groups, ci, co; /* channels of x and y, over all groups */
    int64_t in[PST_CONV_DIMS], out[PST_CONV_DIMS], k[PST_CONV_DIMS];
    int64_t stride[PST_CONV_DIMS], pad[PST_CONV_DIMS], dil[PST_CONV_DIMS];
    const struct pst_operand *x, *y, *w;
    const struct pst_operand *bias; /* added to the output; NULL: none */
    bool accumulate;
};

/* Describe calls of convolution and of its gradients. */
void pst_conv_of_forward(const struct pst_call *call, struct pst_conv *c);
void pst_conv_of_input(const struct pst_call *call, struct pst_conv *c);
void pst_conv_of_weight(const struct pst_call *call, struct pst_conv *c);

/* Returns the product of the sizes: the elements of a window, or the positions
 * of x or y. */
static inline int64_t pst_conv_volume(const int64_t size[PST_CONV_DIMS])
{
    return size[0] * size[1] * size[2];
}

/* Compute y, x or w from the other two. The references accept any strides and
 * dtypes. */
void pst_conv_ref_y(const struct pst_conv *c);
void pst_conv_ref_x(const struct pst_conv *c);
void pst_conv_ref_w(const struct pst_conv *c);

/* Compute y, x or w by im2col and GEMM from contiguous f32 or f64 operands.
 * pst_conv_gemm_scratch returns the bytes of scratch that each of the three
 * needs. */
struct pst_pool;
#define PST_CONV_GEMM_DECL(real, suffix)                                       \
    void pst_conv_gemm_y##suffix(const struct pst_conv *c,                     \
                                 struct pst_pool *pool, real *scratch);        \
    void pst_conv_gemm_x##suffix(const struct pst_conv *c,                     \
                                 struct pst_pool *pool, real *scratch);        \
    void pst_conv_gemm_w##suffix(const struct pst_conv *c,                     \
                                 struct pst_pool *pool, real *scratch);        \
    size_t pst_conv_gemm_scratch##suffix(const struct pst_conv *c,             \
                                         unsigned threads)
PST_CONV_GEMM_DECL(float, );
PST_CONV_GEMM_DECL(double, _f64);

/* Returns entry e of a list of one entry per dimension, or of a list with a
 * single entry for all dimensions. */
static inline int64_t pst_conv_entry(const struct pst_arg *list, unsigned e)
{
    return list->ints[list->n == 1 ? 0 : e];
}
/* Returns the output size along a dimension with input size n. */
int64_t pst_conv_size(int64_t n, int64_t k, int64_t stride, int64_t pad,
                      int64_t dil);

#endif
