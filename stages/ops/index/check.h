// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_CHECK_H
#define PENSTOCK_STAGES_OPS_INDEX_CHECK_H
/* What operators with indices share. */
#include "stages/ops/view/view.h"

/* Is 0 <= at < size? A fault of the call otherwise. */
bool pst_index_check(const struct pst_call *c, int64_t at, int64_t size);

/* values as they broadcast to the window `all`. */
struct pst_meta pst_index_stretched(const struct pst_meta *values,
                                    const struct pst_meta *all);

#endif
