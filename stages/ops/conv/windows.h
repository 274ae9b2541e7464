// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_H
/*
 * Convolutions as products without a column matrix: the product packs its
 * panels from the copy with zeros around that direct_plan.h makes (from the
 * tensor itself, if nothing is added and no step is taken). Images with few
 * positions are multiplied together. Of few rows, positions are counted along
 * the copy, ends of lines too: then the product packs a panel while its first
 * rows are multiplied. For builds without oneDNN.
 *
 * Sums of y and x go over taps in order, those of w over positions, then
 * images; they do not depend on the number of threads.
 */
#include "stages/ops/conv/conv.h"
#include "stages/ops/conv/dnnl.h"
#include "stages/ops/matmul/packed.h"

/* Contiguous f32; by shapes alone. False where oneDNN was built in. */
bool pst_conv_windows_likes(const struct pst_conv *c, enum pst_conv_fill fill);
/* The same, of the method alone: does its memory stay in bounds? */
bool pst_conv_windows_fits(const struct pst_conv *c, enum pst_conv_fill fill);
size_t pst_conv_windows_scratch(const struct pst_conv *c,
                                enum pst_conv_fill fill, unsigned threads);
/* product: pst_gemm_windows, or that of one instruction set. */
void pst_conv_windows_run(const struct pst_conv *c, enum pst_conv_fill fill,
                          struct pst_pool *pool, void *scratch,
                          pst_windows_fn product);

#endif
