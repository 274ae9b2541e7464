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

/* Returns the bytes of a tensor in the first n microbatches of a step. larger:
 * its meta in a microbatch with the plan's rows; smaller: in a tail microbatch,
 * read only if there is one. */
static inline size_t pst_pieces_bytes(const struct pst_exec_options *o,
                                      const struct pst_meta *larger,
                                      const struct pst_meta *smaller,
                                      unsigned n)
{
    const unsigned n_larger = PST_MIN(n, pst_n_larger(o));
    size_t ret = n_larger * pst_meta_bytes(larger);

    if (n > n_larger)
        ret += (n - n_larger) * pst_meta_bytes(smaller);
    return ret;
}

/* Returns the largest number of microbatches that a step may have. */
static inline unsigned pst_most_microbatches(const struct pst_exec_options *o)
{
    unsigned most = o->microbatches;

    for (unsigned i = 0; i < o->n_counts; i++)
        most = PST_MAX(most, o->counts[i]);
    return most;
}

/* Return the bytes of a user output, or of a model input, in the first n
 * microbatches of a step. */
static inline size_t pst_output_bytes(const struct pst_plan *plan,
                                      const struct pst_exec_options *o,
                                      size_t output, unsigned n)
{
    return pst_pieces_bytes(
        o, &plan->outputs.at[output].meta,
        o->tail != NULL ? &o->tail->outputs.at[output].meta : NULL, n);
}

static inline size_t pst_input_bytes(const struct pst_plan *plan,
                                     const struct pst_exec_options *o,
                                     size_t input, unsigned n)
{
    return pst_pieces_bytes(
        o, &plan->inputs.at[input].meta,
        o->tail != NULL ? &o->tail->inputs.at[input].meta : NULL, n);
}

#endif
