// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_WIDEN_H
#define PENSTOCK_STAGES_MODULES_WIDEN_H
/* Parameters of 16 bits that are to be trained after all. One thread. */
#include "stages/frontend/model.h"

/*
 * The parameter is kept in f32 from here on, and what reads it converts it to
 * the dtype that it had: what import does with those that are trained in the
 * export. PST_ERR_UNSUPPORTED: it is written in place, parts of it have names
 * of their own, or the model returns it.
 */
enum pst_status pst_model_widen(struct pst_model *model,
                                struct pst_value *param,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
