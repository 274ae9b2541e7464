// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
#define PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
/* Running sums and products along a dimension, several lanes at a time; the
 * bits equal those of single lanes. in[0] and out[0] are contiguous; dim is
 * argument 1. Thread-safe. */
#include "stages/ops/core/op.h"

/* Inference of cumsum and cumprod: self, dim, dtype; sums of integers are
 * i64. */
enum pst_status pst_infer_running(struct pst_infer *c);

/* Return true if the kernels support the dtypes of in[0] and out[0]. */
bool pst_running_sum_supports(const struct pst_call *c);
void pst_running_sum(const struct pst_call *c);
bool pst_running_product_supports(const struct pst_call *c);
void pst_running_product(const struct pst_call *c);

#endif
