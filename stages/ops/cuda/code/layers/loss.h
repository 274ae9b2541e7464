// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_LOSS_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_LOSS_H
/* Parameters of loss.cu: cross entropy of contiguous logits with class
 * indices as targets (stages/ops/loss/cross_entropy.c). */
#include "stages/ops/cuda/code/params.h"

/* Maximum number of logits of a long row that its block keeps between its two
 * passes. */
#define PST_CUDA_LOSS_KEPT 8192

/* Class k of position i is x[(i / d * classes + k) * d + i % d]. */
struct pst_cuda_loss {
    const void *x;
    const void *target; /* n class indices */
    const void *w;      /* weight of each class; NULL: ones */
    const void *g;      /* backward: one gradient, or n if `each` */
    void *losses;       /* n losses; backward: dx */
    float *weights;  /* weights of the n targets, 0 if ignored; NULL: unused */
    void *sum;       /* the sum or mean of the losses */
    double *divisor; /* backward: divisor of the mean; NULL: 1 */
    int64_t n, classes, d, ignore;
    float smoothing;
    uint32_t wide; /* targets are i64, else i32 */
    uint32_t mean, each;
    /* enum pst_cuda_type of x, w, g and sum, and of losses; for kernels of 16
     * bits */
    uint32_t type, losses_type;
    struct pst_cuda_fault fault;
};

#endif
