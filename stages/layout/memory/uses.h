// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_USES_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_USES_H
/*
 * Contributions to each parameter's gradient: how many accumulators it has.
 * Where nothing is trained, what could be has one use in each of its stages:
 * its values may be shared (flat.h). Constant; any thread.
 */
#include "stages/split/plan.h"

/* Borrows the plan. */
struct pst_uses {
    const struct pst_plan *plan;
    bool train;
};
#define PST_SEPARATE_USES 8

/* Accumulators of a parameter in that stage, and in all. */
unsigned pst_uses_parts(const struct pst_uses *uses, unsigned param,
                        unsigned stage);
unsigned pst_uses_total(const struct pst_uses *uses, unsigned param);

#endif
