// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_CROSS_ENTROPY_H
#define PENSTOCK_STAGES_OPS_LOSS_CROSS_ENTROPY_H
/* Helpers of the cross-entropy kernels. */
#include "stages/ops/loss/loss.h"

/* Describes a call whose arguments from `first` on are self, target, weight,
 * reduction, ignore, smoothing. */
struct pst_classes pst_entropy_classes(const struct pst_call *c,
                                       unsigned first);
/* Returns the incoming gradient of the loss at position i, divided by `divisor`
 * (pst_entropy_divisor). */
double pst_entropy_incoming(const struct pst_call *c,
                            const struct pst_classes *p, int64_t i,
                            double divisor);
double pst_entropy_divisor(const struct pst_call *c,
                           const struct pst_classes *p);

/* Kernels of cross_entropy_fast.c, for contiguous f32. */
bool pst_entropy_forward_fits(const struct pst_call *c);
bool pst_entropy_backward_fits(const struct pst_call *c);
size_t pst_entropy_forward_scratch(const struct pst_call *c, unsigned threads);
size_t pst_entropy_backward_scratch(const struct pst_call *c, unsigned threads);
#define DECLARE(suffix, set)                                                   \
    void pst_entropy_forward_##suffix(const struct pst_call *c);               \
    void pst_entropy_backward_##suffix(const struct pst_call *c);
PST_SIMD_EACH(DECLARE)
#undef DECLARE

#endif
