// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
#define PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
/* Running sums and extremes along a dimension, several lanes at a time; the
 * same bits as lane by lane. in[0] and out[0] are contiguous; dim is argument
 * 1. Thread-safe. */
#include "stages/ops/op.h"

/* For the dtypes of in[0] and out[0]. */
bool pst_running_sum_supports(const struct pst_call *c);
void pst_running_sum(const struct pst_call *c);
bool pst_running_extreme_supports(const struct pst_call *c);
void pst_running_max(const struct pst_call *c);
void pst_running_min(const struct pst_call *c);

#endif
