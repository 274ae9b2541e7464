// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_AGAIN_H
#define PENSTOCK_STAGES_SPLIT_AGAIN_H
/*
 * A plan as a model that can be changed and cut again where it was cut: for
 * modules that are replaced when the model's file is long gone. One thread.
 */
#include "stages/split/plan.h"

/* Start values of plan->params[i], as pst_plan_read_param has them. */
typedef enum pst_status (*pst_param_fn)(void *ctx, unsigned i, void *dst,
                                        struct pst_diag *diag);

/* Each node knows its stage. Borrows plan; fn and ctx are asked for values
 * while *ret lives. */
enum pst_status pst_plan_model(struct pst_plan *plan, pst_param_fn fn,
                               void *ctx, struct pst_model **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* A plan of a model whose nodes know their stages, as many as `like` has; what
 * is transmitted is like's, too. loss: index in the model's outputs. Borrows
 * model. */
enum pst_status pst_split_again(struct pst_model *model,
                                const struct pst_plan *like, int loss,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
