// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_REPLACE_H
#define PENSTOCK_STAGES_MODULES_REPLACE_H
/*
 * Another module in the place of one of a model's: at every call of its path,
 * or at one of them, the nodes of the call (and of the calls in it) give way to
 * those of a model file of its own. Everything else stays as it is, node ids
 * included, so that random numbers do.
 *
 * What a call takes and returns is what its signature says, where the export
 * kept it; else the tensors that pass into it and out of it. The file's
 * arguments stand in the same order. Without a signature the order of several
 * tensors is not known: then their names or their shapes have to tell.
 * Constants among the file's arguments have to be those of the call, unless
 * the call is named.
 *
 * Sizes that the file leaves free are those of the call, so that what the model
 * leaves free stays so; else the model is fixed at its sizes.
 *
 * State of the old module that nothing else reads goes; that of the new one is
 * called PATH.NAME, or PATH@CALL.NAME if other calls keep the old module.
 *
 * One thread.
 */
#include "stages/frontend/model.h"

struct pst_replacement {
    const char *path; /* FQN of the module that goes */
    int call;         /* index of one call of it; -1: all */
    bool aliases;     /* also at its other names */
    const struct pst_model *module;
};

/*
 * *ret borrows both models, which must outlive it. PST_ERR_INPUT names a module
 * that is not there or not called; PST_ERR_SHAPE prints what
 * the call and the file take and return. *ret_calls: that were replaced; may be
 * NULL.
 */
enum pst_status pst_model_replace(const struct pst_model *model,
                                  const struct pst_replacement *what,
                                  struct pst_model **ret, unsigned *ret_calls,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
