// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_USES_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_USES_H
/*
 * Number of gradient accumulators of each parameter. Without training, each
 * parameter that could be trained has one use in each of its stages, since its
 * values may be sharded (flat.h). Constant; any thread.
 */
#include "stages/split/plan.h"

/* Borrows the plan. */
struct pst_uses {
    const struct pst_plan *plan;
    bool train;
};
#define PST_SEPARATE_USES 8

/* Return the number of accumulators of a parameter: in one stage; in all
 * stages. */
unsigned pst_uses_parts(const struct pst_uses *uses, unsigned param,
                        unsigned stage);
unsigned pst_uses_total(const struct pst_uses *uses, unsigned param);

#endif
