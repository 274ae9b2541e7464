// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_STEP_H
#define PENSTOCK_STAGES_ALIAS_STEP_H
/*
 * Steps of an optimizer on the leaves of a program, where they lie in the
 * caller's storages: from what they hold after the call, which may have written
 * them. One thread.
 */
#include "stages/alias/program.h"
#include "stages/optim/optim.h"
#include "stages/run/dump.h"

struct pst_leaves;

/* Borrows options. */
enum pst_status pst_leaves_new(const struct pst_optim_options *options,
                               struct pst_leaves **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_leaves_free(struct pst_leaves *leaves);
/* Everything that can fail of a step with these gradients ("grad.NAME"). */
enum pst_status pst_leaves_prepare(struct pst_leaves *leaves,
                                   const struct pst_program_operand *operands,
                                   unsigned n, const struct pst_dump *grads,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The step that has been prepared, for the same arguments. */
void pst_leaves_step(struct pst_leaves *leaves,
                     const struct pst_program_operand *operands, unsigned n,
                     const struct pst_call_storage *storages,
                     const struct pst_dump *grads);
/* Contiguous, after the last step; NULL: it had none. */
const void *pst_leaves_value(const struct pst_leaves *leaves, const char *name);

#endif
