// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_DNNL_H
#define PENSTOCK_STAGES_OPS_CONV_DNNL_H
/*
 * Convolutions by oneDNN, in layouts of its choice: operands are converted to
 * them before the convolution, the result after it. Each shape is compiled
 * once, when a kernel's scratch is requested. Parts of a batch are divided
 * among the threads of the pool.
 */
#include "stages/ops/conv/conv.h"

enum pst_conv_fill { PST_CONV_Y, PST_CONV_X, PST_CONV_W };

/* True for contiguous f32 operands that are large enough to benefit; depends on
 * shapes only. False if oneDNN was not built in. */
bool pst_conv_dnnl_preferred(const struct pst_conv *c, enum pst_conv_fill fill);
/* Returns the bytes of scratch for all threads; 0 if oneDNN refuses the
 * convolution. */
size_t pst_conv_dnnl_scratch(const struct pst_conv *c, enum pst_conv_fill fill,
                             unsigned threads);
void pst_conv_dnnl_run(const struct pst_conv *c, enum pst_conv_fill fill,
                       struct pst_pool *pool, void *scratch);

#endif
