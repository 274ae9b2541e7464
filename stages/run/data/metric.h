// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_METRIC_H
#define PENSTOCK_STAGES_RUN_DATA_METRIC_H
/*
 * Weights of the microbatches in the mean, over the data, of an output that is
 * one number. Exec thread only.
 */
#include "stages/run/data/mean.h"

/* Sets *ret to PST_MEAN_BY_EITHER if plan->outputs[output] is a mean over
 * targets: it is computed from a mean loss that can ignore targets, or is
 * divided by one number that depends on the model's inputs alone, such as the
 * number of targets that count. Else sets *ret to PST_MEAN_BY_ROWS. */
enum pst_status pst_metric_find_by(struct pst_plan *plan, unsigned output,
                                   enum pst_mean_by *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
