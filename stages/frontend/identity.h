// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IDENTITY_H
#define PENSTOCK_STAGES_FRONTEND_IDENTITY_H
/*
 * What a model computes in evaluation, as a digest: its operators as
 * model.eval() would run them, the names of its state, and the values of what
 * no checkpoint has (constants, buffers that are not persistent). Equal for two
 * exports, one to train and one to evaluate, that differ by nothing but modes
 * that the file tells of; the same for any order of the nodes, any cut, what
 * sizes a model with free ones was exported at, and whatever is trained.
 * Neither weights nor a loss that is added are part of it.
 */
#include "stages/frontend/model.h"

enum pst_status pst_model_identity(const struct pst_model *model, char ret[33],
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
