// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POOL_EXTENT_H
#define PENSTOCK_STAGES_OPS_POOL_EXTENT_H
/* Limits on window sizes and paddings. */
#include "stages/ops/core/infer.h"

#define PST_POOL_MAX (INT64_C(1) << 30)

/* Checks that list i (schema order) has `dims` entries or a single one, and
 * that all are in least..PST_POOL_MAX. */
static inline enum pst_status pst_pool_check_list(const struct pst_infer *c,
                                                  unsigned i, unsigned dims,
                                                  int64_t least)
{
    const struct pst_arg *list = &c->args[i];

    if (list->n != dims && list->n != 1)
        return pst_infer_fail(c, "\"%s\" has %u entries for %u dimensions",
                              c->schema->args[i].name, list->n, dims);
    for (unsigned k = 0; k < list->n; k++)
        if (list->ints[k] < least || list->ints[k] > PST_POOL_MAX)
            return pst_infer_fail(c, "\"%s\" holds %lld",
                                  c->schema->args[i].name,
                                  (long long)list->ints[k]);
    return PST_OK;
}

#endif
