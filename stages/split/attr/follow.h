// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_FOLLOW_H
#define PENSTOCK_STAGES_SPLIT_ATTR_FOLLOW_H
/*
 * Casts another export of a model, such as that of --eval-model, in the way in
 * which a running job has cast the model itself. One thread.
 */
#include "stages/split/attr/attr.h"

#define PST_MAX_FOLLOWS 4 /* maximum number of dtypes to cast to */

/* `of` is a tensor of another export. Returns the tensor of `like` with one of
 * its names if a change in a running job has cast that tensor, so that nodes
 * read another dtype there than in the export. NULL: the dtypes are the same,
 * no change explains the difference, or the shapes differ. */
const struct pst_plan_param *pst_cast_like(const struct pst_plan *like,
                                           const struct pst_plan_param *of);
/*
 * Casts the model's tensors to the dtypes that they have in `like`. The model
 * was rebuilt from `plan`, whose parameters have the names of like's; cast
 * parameters require a gradient if like's do. The caller zeroes ret, which
 * receives the castings, also after an error, and frees them after the model.
 * Errors as of pst_model_cast.
 */
enum pst_status pst_model_follow_casts(struct pst_model *model,
                                       struct pst_plan *plan,
                                       const struct pst_plan *like,
                                       struct pst_casting *ret[PST_MAX_FOLLOWS],
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
