// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_FREEZE_H
#define PENSTOCK_STAGES_MODULES_FREEZE_H
/* Which parameters of a model are trained. One thread. */
#include "stages/frontend/model.h"

/*
 * A parameter matches if a name of it, or of a module that it lies in, does:
 * "h.0" and "h.*" mean all of h.0. Of a tied one any name will do. Those that
 * match are trained no more (frozen), or are trained; *ret_n: how many were
 * not so before. What is trained of 16 bits is kept in f32. PST_ERR_INPUT that
 * names the nearest: nothing matches; PST_ERR_UNSUPPORTED: a parameter that has
 * no gradient.
 */
enum pst_status pst_model_freeze(struct pst_model *model, const char *pattern,
                                 bool frozen, unsigned *ret_n,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
