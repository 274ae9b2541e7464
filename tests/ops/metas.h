// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_OPS_METAS_H
#define PENSTOCK_TESTS_OPS_METAS_H
/* Metas of operands that a test makes by hand. */
#include "stages/base/macros.h"
#include "stages/graph/tensor.h"

/* Returns a copy that is valid until 256 others have been made. */
static inline struct pst_meta *test_meta(struct pst_meta meta)
{
    static struct pst_meta metas[256];
    static unsigned n;
    struct pst_meta *ret = &metas[n++ % 256];

    *ret = meta;
    return ret;
}

#endif
