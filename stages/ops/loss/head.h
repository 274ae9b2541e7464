// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_HEAD_H
#define PENSTOCK_STAGES_OPS_LOSS_HEAD_H
/*
 * The head of a language model: cross entropy of a linear layer's results,
 *     u = scale (x W^T + b),  y = cap tanh(u / cap), or u if cap is 0,
 *     loss = cross entropy of y and the targets,
 *     z = sum or mean over rows of m L^2, L = log sum exp(y),
 * computed in chunks of rows, so that the logits of all rows are never in
 * memory together. A z-loss (PaLM, arXiv:2204.02311, section 5) is a factor
 * times z; m is a mask, or 1; z is 0 if it is not requested.
 *
 * With the argument `low` (bf16, f16) the layer computes as under autocast: x,
 * W, b, its results and their gradients are rounded to that dtype, sums are
 * computed in f32. All other tensors are f32, including the gradients of x, W
 * and b. W may already have the dtype `low`.
 *
 * Four operators have the same arguments (the last three after the gradients of
 * loss and z) and share this description. Each computes a part:
 *     linear_cross_entropy           the loss and z
 *     linear_cross_entropy_input     gradient of x, the loss and z
 *     linear_cross_entropy_weight    gradients of W and b
 *     linear_cross_entropy_backward  all of these, with one computation of the
 *                                    logits
 * Chunks and the order of sums are the same in all of them, so that the bits do
 * not depend on which of them a stage runs.
 */
#include "stages/ops/loss/loss.h"

struct pst_head {
    const struct pst_operand *x, *weight, *bias; /* bias: NULL if absent */
    struct pst_classes targets; /* targets.x is not set; one position per row */
    int64_t rows, depth, classes;
    double scale, cap;
    enum pst_dtype low;             /* f32: nothing is rounded */
    const struct pst_operand *mask; /* weight of each row in z; NULL: 1 */
    int64_t z_reduction;            /* as for the loss; 0: z is 0 */
    /* gradient of the loss (NULL: the call computes no gradients) and of z
     * (NULL: 0) */
    const struct pst_operand *loss_grad, *z_grad;
    /* results; NULL: not computed */
    struct pst_operand *loss, *z, *dx, *dweight, *dbias;
};

/* Returns the dtype of the operands of a node's matmuls; for any other
 * operator, the dtype of the node's first result. */
enum pst_dtype pst_head_matmul_dtype(const struct pst_node *node);
/* Describes a call of one of the four operators. */
struct pst_head pst_head_describe(const struct pst_call *c);

/* Returns the factor m of a row in z; 0 if the row is masked. */
double pst_head_mask(const struct pst_head *h, int64_t row);
/* Returns the number by which the sum of z is divided. */
double pst_head_z_divisor(const struct pst_head *h);

/* Returns the number of rows of a chunk, which depends on the number of classes
 * alone. */
int64_t pst_head_chunk(int64_t classes);

/* Kernels of head_fast.c, for contiguous f32, without `low` and with it. */
bool pst_head_fits(const struct pst_call *c);
bool pst_head_fits_low(const struct pst_call *c);
size_t pst_head_scratch(const struct pst_call *c, unsigned threads);
#define DECLARE(suffix, set)                                                   \
    void pst_head_run_##suffix(const struct pst_call *c);
PST_SIMD_EACH(DECLARE)
#undef DECLARE

#endif
