// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_CONVERT_AGAIN_H
#define PENSTOCK_STAGES_SPLIT_CONVERT_AGAIN_H
/*
 * Turns a plan back into a model that can be edited and cut again at the same
 * places: for replacing modules when the model's file no longer exists. One
 * thread.
 */
#include "stages/split/plan.h"

/* Builds a model from a plan; every node has its stage. Borrows plan; *ret
 * reads values by fn and ctx, as long as it lives. */
enum pst_status pst_plan_model(struct pst_plan *plan, pst_param_fn fn,
                               void *ctx, struct pst_model **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the first trained parameter that is bf16 (--params bf16); NULL: there
 * is none. */
const struct pst_plan_param *pst_plan_find_bf16(const struct pst_plan *plan);
/* PST_ERR_UNSUPPORTED: a trained parameter is bf16. Modules of such a plan are
 * neither replaced nor frozen, and its tensors are neither set nor cast. */
enum pst_status pst_plan_check_editable(const struct pst_plan *plan,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Cuts a model whose nodes already have their stages, those of `like`.
 * Parameters that `like` transmits are transmitted again. loss: index in the
 * model's outputs. Borrows model. */
enum pst_status pst_split_again(struct pst_model *model,
                                const struct pst_plan *like, int loss,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
