// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_FREEZE_H
#define PENSTOCK_STAGES_MODULES_FREEZE_H
/* Selects the parameters of a model that are trained. One thread. */
#include "stages/frontend/model.h"

/*
 * Freezes the parameters that match, or makes them trainable. A parameter
 * matches by its name or that of a module that contains it: "h.0" and "h.*"
 * mean all of h.0. A tied one matches by any of its names. *ret_n: number of
 * parameters that changed. Trained 16-bit parameters are kept in f32.
 * PST_ERR_INPUT with the nearest name: nothing matches; PST_ERR_UNSUPPORTED: a
 * parameter has no gradient.
 */
enum pst_status pst_model_freeze(struct pst_model *model, const char *pattern,
                                 bool frozen, unsigned *ret_n,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
