// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_JOIN_H
#define PENSTOCK_STAGES_SPLIT_JOIN_H
/*
 * The other way round: a plan of many stages as a plan of one, so that a plan
 * can be compared with its uncut form when the model's file is gone. The
 * stages' graphs stand one behind the other, edges are plain values. Node ids,
 * names, inputs, outputs and parameters (and their order) are those of `plan`.
 */
#include "stages/split/plan.h"

/* Borrows plan, which holds the parameters' data, until *ret is freed with
 * pst_plan_free. */
enum pst_status pst_plan_join(struct pst_plan *plan, struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* The same in the modes of model.eval(), whatever mode the model was exported
 * in: dropout does nothing, norms read their running statistics. */
enum pst_status pst_plan_eval(struct pst_plan *plan, struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
