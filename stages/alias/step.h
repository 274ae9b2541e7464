// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_STEP_H
#define PENSTOCK_STAGES_ALIAS_STEP_H
/*
 * Optimizer steps on the leaves of a program in the caller's storages. A step
 * starts from the values that the leaves have after the call, which may have
 * written them. One thread.
 */
#include "stages/alias/program.h"
#include "stages/optim/optim.h"
#include "stages/run/dump.h"

struct pst_alias_leaves;

/* Borrows options. */
enum pst_status pst_alias_leaves_new(const struct pst_optim_options *options,
                                     struct pst_alias_leaves **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pst_alias_leaves_free(struct pst_alias_leaves *leaves);
/* Prepares a step with these gradients, which are named "grad.NAME": does
 * everything that can fail. */
enum pst_status pst_alias_leaves_prepare(
    struct pst_alias_leaves *leaves,
    const struct pst_alias_program_operand *operands, unsigned n,
    const struct pst_dump *grads, struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the prepared step, which cannot fail. operands and grads: as in
 * pst_alias_leaves_prepare. */
void pst_alias_leaves_step(struct pst_alias_leaves *leaves,
                           const struct pst_alias_program_operand *operands,
                           unsigned n, const struct pst_call_storage *storages,
                           const struct pst_dump *grads);
/* Returns the leaf's value after the last step, contiguous; NULL if it had
 * none. */
const void *pst_alias_leaves_value(const struct pst_alias_leaves *leaves,
                                   const char *name);

#endif
