// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_H
/*
 * Convolutions as GEMM without a column matrix: GEMM packs its panels from the
 * zero-padded copy of direct_plan.h (or from the tensor itself, if there is no
 * padding and all strides are 1). Images with few positions are joined in one
 * GEMM. If the result has few rows, positions are counted along the copy,
 * including the ends of its lines: GEMM can then pack a panel while it
 * multiplies the first rows. Used in builds without oneDNN.
 *
 * Elements of y and x are sums over taps in order; those of w are sums over
 * positions, then images. They do not depend on the number of threads.
 */
#include "stages/ops/conv/conv.h"
#include "stages/ops/conv/dnnl.h"
#include "stages/ops/matmul/packed.h"

/* True if these kernels are preferred for the convolution, whose operands must
 * be contiguous f32; depends on shapes only. False if oneDNN was built in. */
bool pst_conv_windows_preferred(const struct pst_conv *c,
                                enum pst_conv_fill fill);
/* True if these kernels can compute the convolution within their limits of
 * memory, even if other kernels are faster. */
bool pst_conv_windows_fits(const struct pst_conv *c, enum pst_conv_fill fill);
size_t pst_conv_windows_scratch(const struct pst_conv *c,
                                enum pst_conv_fill fill, unsigned threads);
/* Runs the convolution by the GEMM `product`: pst_gemm_windows or that of one
 * instruction set. */
void pst_conv_windows_run(const struct pst_conv *c, enum pst_conv_fill fill,
                          struct pst_pool *pool, void *scratch,
                          pst_windows_fn product);

#endif
