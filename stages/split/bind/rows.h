// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
#define PENSTOCK_STAGES_SPLIT_BIND_ROWS_H
/*
 * What is divided into microbatches: the rows of a plan's inputs. Private to
 * stages/split.
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

#endif
