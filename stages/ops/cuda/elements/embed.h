// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_EMBED_H
#define PENSTOCK_STAGES_OPS_CUDA_ELEMENTS_EMBED_H
#include "stages/ops/cuda/code/elements/embed.h"
#include "stages/ops/cuda/launch.h"

/* Enqueues to[0..n-1] = x. */
void pst_cuda_fill_n(struct pst_cuda_context *c, int32_t *to, int64_t n,
                     int32_t x);
/* Enqueues the kernels that sum rows by index, in the order of the
 * positions. */
void pst_cuda_embed_sum(struct pst_cuda_context *c,
                        const struct pst_cuda_embed_grad *p);

#endif
