// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_ALONG_H
#define PENSTOCK_STAGES_OPS_INDEX_ALONG_H
/* One index for each element along one dimension, in blocks. Thread-safe. */
#include "stages/ops/index/places.h"

/* Moves (or adds) between list, which has index's sizes or more (0 dimensions:
 * one number for all), and the places of the table along dim. Both have one
 * dtype. Threads do not change bits. */
void pst_along_run(const struct pst_call *c, enum pst_places_mode mode,
                   const struct pst_operand *table, int dim,
                   const struct pst_operand *index,
                   const struct pst_operand *list);

#endif
