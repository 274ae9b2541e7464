// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_FOLLOW_H
#define PENSTOCK_STAGES_SPLIT_ATTR_FOLLOW_H
/*
 * Casts another export of a model, such as that of --eval-model, as changes of
 * a running job have cast the model itself. One thread.
 */
#include "stages/split/attr/attr.h"

#define PST_MAX_FOLLOWS 4 /* dtypes to which tensors are cast */

/* Returns the tensor of `like` with a name of `of`, a tensor of another export,
 * if its readers see another dtype there because of a change in a running job;
 * NULL: the dtypes are the same, no change explains it, or the shapes differ.
 */
const struct pst_plan_param *pst_cast_like(const struct pst_plan *like,
                                           const struct pst_plan_param *of);
/*
 * Casts the model's tensors to the dtypes that they have in `like`. plan is the
 * plan from which the model was rebuilt; its parameters have the names of
 * like's, and those that are cast want a gradient if like's do. Sets some of
 * ret, which is zeroed, also after an error; the caller frees them after the
 * model. Errors as of pst_model_cast.
 */
enum pst_status pst_model_follow_casts(struct pst_model *model,
                                       struct pst_plan *plan,
                                       const struct pst_plan *like,
                                       struct pst_casting *ret[PST_MAX_FOLLOWS],
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
