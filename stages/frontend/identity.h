// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IDENTITY_H
#define PENSTOCK_STAGES_FRONTEND_IDENTITY_H
/*
 * A digest of what a model computes in evaluation: its operators under
 * model.eval(), the names of its state, and the values that checkpoints do not
 * have (constants, buffers that are not persistent). It is equal for an export
 * for training and one for evaluation that differ only in modes recorded in the
 * file, and does not depend on the order of nodes, the cut, the sizes at export
 * or which parameters are frozen. Weights and an added loss are not part of it.
 */
#include "stages/frontend/model.h"

enum pst_status pst_model_identity(const struct pst_model *model, char ret[33],
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
