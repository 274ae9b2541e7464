// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_BATCH_H
#define PENSTOCK_STAGES_LAYOUT_BATCH_H
/*
 * Sizes of the microbatches of a step. The last options.n_tail microbatches
 * have the number of rows of options.tail, which is one less than that of the
 * plan. All others have the plan's number of rows. Pure functions; any thread.
 */
#include "stages/base/macros.h"
#include "stages/layout/options.h"

/* Returns how many microbatches of the whole step have the plan's rows. */
static inline unsigned pst_n_larger(const struct pst_exec_options *o)
{
    return o->microbatches - (o->tail != NULL ? o->n_tail : 0);
}

/* Returns the bytes of a user output in the first n microbatches of a step. */
static inline size_t pst_output_bytes(const struct pst_plan *plan,
                                      const struct pst_exec_options *o,
                                      size_t output, unsigned n)
{
    const unsigned larger = PST_MIN(n, pst_n_larger(o));
    size_t ret = larger * pst_meta_bytes(&plan->outputs.at[output].meta);

    if (n > larger)
        ret += (n - larger) * pst_meta_bytes(&o->tail->outputs.at[output].meta);
    return ret;
}

#endif
