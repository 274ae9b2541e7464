// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
#define PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
/*
 * The rows of a plan's inputs, which are divided into microbatches.
 */
#include "stages/split/plan.h"

/* Returns the expression of the size along which the input is divided; NULL:
 * that size is fixed, or the input is not divided. */
const char *pst_row_expr(const struct pst_plan_input *input);
/* Returns the input that defines the rows of a microbatch: the first input
 * whose divided size is a single symbol, else the first with a symbolic divided
 * size, else the first that is divided; NULL if none is divided. */
const struct pst_plan_input *pst_row_input(const struct pst_plan *plan);
/* Finds an input by name; `option` is named in the error for an unknown
 * name. */
enum pst_status pst_plan_find_input(struct pst_plan *plan, const char *option,
                                    const char *name, size_t len,
                                    struct pst_plan_input **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the dimension of an input that is divided into microbatches: "NAME=DIM",
 * or "NAME=replicate" to give the whole input to every microbatch. Only for a
 * plan that was just made. */
enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the rows of a microbatch: the divided size of pst_row_input; 1 if no
 * input is divided. */
int64_t pst_plan_rows(const struct pst_plan *plan);
/* True if the plan can be bound to another number of rows. */
bool pst_plan_is_free(const struct pst_plan *plan);

/* Finds the dimension of a user output along which microbatches are
 * concatenated: the first whose symbolic size depends on the number of rows. If
 * the sizes are fixed, the dimension is guessed: that along which the input is
 * divided, if it is 0 or the output has the rows' size there; else the only
 * dimension of that size. 0 if undetermined. *ret_rows (or NULL): true if the
 * output has one entry per row in that dimension. */
enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret, bool *ret_rows,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
