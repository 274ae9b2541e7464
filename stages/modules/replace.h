// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_REPLACE_H
#define PENSTOCK_STAGES_MODULES_REPLACE_H
/*
 * Replaces a module of a model: at every call of its path, or at one of them,
 * the nodes of the call (and of nested calls) are replaced by those of a model
 * file. Everything else stays as it is, including node ids and so random
 * numbers.
 *
 * Inputs and results of a call are those of its signature, if the export kept
 * it; else the tensors that pass into and out of it. The file's arguments must
 * be in the same order. Without a signature the order of several tensors is
 * unknown, and they are matched by name or by shape. Literals among the file's
 * arguments must equal those of the call, unless one call is given explicitly.
 *
 * Symbolic sizes of the file take the sizes of the call, so that the model's
 * stay symbolic; if the file's are fixed, the model's become fixed.
 *
 * State of the old module that nothing else reads is removed. State of the new
 * one is named PATH.NAME, or PATH@CALL.NAME if other calls keep the old module.
 *
 * One thread.
 */
#include "stages/frontend/model.h"

struct pst_replacement {
    const char *path; /* FQN of the module to replace */
    int call;         /* number of one call of it; -1: all */
    bool aliases;     /* also replace calls under its other names */
    const struct pst_model *module;
};

/*
 * Makes the new model. *ret borrows both models, which must outlive it.
 * PST_ERR_INPUT names a module that does not exist or is not called;
 * PST_ERR_SHAPE reports the inputs and results of the call and the file.
 * *ret_calls: number of replaced calls; may be NULL.
 */
enum pst_status pst_model_replace(const struct pst_model *model,
                                  const struct pst_replacement *what,
                                  struct pst_model **ret, unsigned *ret_calls,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
