// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IDENTITY_H
#define PENSTOCK_STAGES_FRONTEND_IDENTITY_H
/*
 * A digest of what a model computes in evaluation: its operators under
 * model.eval(), the names of its state, and the values that no checkpoint
 * contains (constants, non-persistent buffers). An export for training and one
 * for evaluation have the same digest if they differ only in modes recorded in
 * the file. The digest does not depend on the order of nodes, the split into
 * stages, the sizes at export or which parameters are frozen. It covers neither
 * weights nor an added loss.
 */
#include "stages/frontend/model.h"

enum pst_status pst_model_identity(const struct pst_model *model, char ret[33],
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
