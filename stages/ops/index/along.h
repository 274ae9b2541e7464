// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_ALONG_H
#define PENSTOCK_STAGES_OPS_INDEX_ALONG_H
/* Indexing with one index per element along one dimension, in blocks.
 * Thread-safe. */
#include "stages/ops/index/places.h"

/* Moves (or adds) elements between list, which has at least index's sizes (0
 * dimensions: one number for all), and the indexed positions of the table along
 * dim. Both have one dtype. Results do not depend on the number of threads. */
void pst_along_run(const struct pst_call *c, enum pst_places_mode mode,
                   const struct pst_operand *table, int dim,
                   const struct pst_operand *index,
                   const struct pst_operand *list);

#endif
