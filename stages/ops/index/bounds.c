// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/index/bounds.h"

bool pst_index_check(const struct pst_call *c, int64_t at, int64_t size)
{
    if (at >= 0 && at < size)
        return true;
    pst_call_fault(c, PST_FAULT_INDEX_RANGE, {.i = at}, {.i = size});
    return false;
}

struct pst_meta pst_index_stretched(const struct pst_meta *values,
                                    const struct pst_meta *all)
{
    struct pst_meta m = *all;

    for (unsigned d = 0; d < all->rank; d++) {
        const unsigned missing = all->rank - values->rank;

        m.stride[d] = d < missing || values->size[d - missing] == 1
                          ? 0
                          : values->stride[d - missing];
    }
    return m;
}
