// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
#define PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
/*
 * What is divided into microbatches: the rows of a plan's inputs.
 */
#include "stages/split/plan.h"

/* The expression of the size that is divided, or NULL. */
const char *pst_row_expr(const struct pst_plan_input *input);
/* The input whose rows are those of a microbatch: one with a bare symbol, else
 * one with a free size, else any that is divided; NULL: there is none. */
const struct pst_plan_input *pst_row_input(const struct pst_plan *plan);
/* By name; an unknown one is refused in the name of the option. */
enum pst_status pst_plan_find_input(struct pst_plan *plan, const char *option,
                                    const char *name, size_t len,
                                    struct pst_plan_input **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

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

/* The dimension of a user output along which microbatches are joined: the one
 * that depends on their rows. Where sizes are fixed and an input is divided
 * along another dimension than 0: that one, if it has as many rows, else the
 * only one that has. 0 if nothing says. *ret_rows (or NULL): it has something for each row there. */
enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret, bool *ret_rows,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
