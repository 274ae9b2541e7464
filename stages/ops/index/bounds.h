// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_BOUNDS_H
#define PENSTOCK_STAGES_OPS_INDEX_BOUNDS_H
/* Helpers of operators with indices. */
#include "stages/ops/view/view.h"

/* True if 0 <= at < size; otherwise reports a fault of the call. */
bool pst_index_check(const struct pst_call *c, int64_t at, int64_t size);

/* Returns `values` broadcast to the shape of `all`: stride 0 along the
 * dimensions that `values` lacks or in which its size is 1. */
struct pst_meta pst_index_stretched(const struct pst_meta *values,
                                    const struct pst_meta *all);

#endif
