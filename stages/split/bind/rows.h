// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
#define PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
/*
 * The rows of a plan's inputs, which are divided into microbatches.
 */
#include "stages/split/plan.h"

/* Returns the expression of the divided size, or NULL. */
const char *pst_row_expr(const struct pst_plan_input *input);
/* Returns the input that defines the rows of a microbatch: one whose size is a
 * single symbol, else one with a free size, else any that is divided; NULL if
 * none is. */
const struct pst_plan_input *pst_row_input(const struct pst_plan *plan);
/* Finds an input by name; the error for an unknown one names the option. */
enum pst_status pst_plan_find_input(struct pst_plan *plan, const char *option,
                                    const char *name, size_t len,
                                    struct pst_plan_input **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the dimension of an input that is divided into microbatches: "NAME=DIM",
 * or "NAME=replicate" to give it whole to every microbatch. Only for a plan
 * that was just made. */
enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the rows of a microbatch: the divided size of the first input with a
 * free size, else of the first input that is divided; 1 if none is. */
int64_t pst_plan_rows(const struct pst_plan *plan);
/* True if the plan can be bound to another number of rows. */
bool pst_plan_is_free(const struct pst_plan *plan);

/* Finds the dimension of a user output along which microbatches are
 * concatenated: the one that depends on their rows. With fixed sizes, if an
 * input is divided along a dimension other than 0: that dimension if it has as
 * many rows, else the only one that has. 0 if undetermined. *ret_rows (or
 * NULL): the output has an entry for each row in that dimension. */
enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret, bool *ret_rows,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
