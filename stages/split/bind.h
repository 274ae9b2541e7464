// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_H
#define PENSTOCK_STAGES_SPLIT_BIND_H
/*
 * A plan for microbatches of another size. Models that were exported with a
 * Dim leave sizes free (stages/graph/symbol.h); the nodes of all stages are
 * emitted anew with the numbers that follow from the new sizes, and shapes are
 * inferred again. Stages, edges, names, ids and parameters stay as they are.
 * One thread.
 */
#include "stages/split/plan.h"

/* Which dimension of an input is divided into microbatches: "NAME=DIM", or
 * "NAME=replicate" for one that all microbatches get whole. For the caller
 * that has just made the plan. */
enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Rows of a microbatch: the size of what is divided, of the first input whose
 * size is free, else of the first that is divided; 1 if none is. */
int64_t pst_plan_rows(const struct pst_plan *plan);
/* Can the plan be bound to another number of rows? */
bool pst_plan_is_free(const struct pst_plan *plan);

/* Borrows plan, which holds the parameters' data, until *ret is freed. Refuses
 * by name what the export did not leave free and what is out of a range. */
enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
