// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_ALONG_H
#define PENSTOCK_STAGES_OPS_INDEX_ALONG_H
/* Indexing with one index per element along one dimension, in blocks.
 * Thread-safe. */
#include "stages/ops/index/places.h"

/* Moves or adds elements (`mode`) between `list` and the elements of `table`
 * that `index` selects along dimension `dim`. Each size of `list` is at least
 * that of `index`; a list without dimensions is one number for all. Both have
 * the same dtype. Results do not depend on the number of threads. */
void pst_along_run(const struct pst_call *c, enum pst_places_mode mode,
                   const struct pst_operand *table, int dim,
                   const struct pst_operand *index,
                   const struct pst_operand *list);

#endif
