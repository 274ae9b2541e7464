// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_WIDEN_H
#define PENSTOCK_STAGES_MODULES_WIDEN_H
/* Keeps trained parameters in another dtype than the model computes with. One
 * thread. */
#include "stages/frontend/model.h"

/*
 * Keeps the parameter in f32 and makes every reader convert it to its old
 * dtype, as import does for parameters that the export trains.
 * PST_ERR_UNSUPPORTED: it is written in place, parts of it have names, or the
 * model returns it.
 */
enum pst_status pst_model_widen(struct pst_model *model,
                                struct pst_value *param,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Keeps one f32 parameter in bf16; readers convert it to f32. Errors as for
 * pst_model_widen. */
enum pst_status pst_model_keep_param_bf16(struct pst_model *model,
                                          struct pst_value *param,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Keeps all trained f32 parameters in bf16 (--params bf16). Sets *ret_n to
 * their number. */
enum pst_status pst_model_keep_bf16(struct pst_model *model, unsigned *ret_n,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
