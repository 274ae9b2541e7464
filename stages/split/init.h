// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_INIT_H
#define PENSTOCK_STAGES_SPLIT_INIT_H
/* Start values for a model that was exported without values. One thread. */
#include "stages/split/plan.h"

/*
 * Gives start values to each tensor without values. They depend only on the
 * seed, the tensor's name and the element. For a plan made by pst_split;
 * pst_plan_set_weights must come after it and replaces these values.
 * PST_ERR_INPUT names tensors for which there is no rule; PST_ERR_USAGE: all
 * tensors have values.
 *
 * std 0: as PyTorch's modules initialise them (reset_parameters), by class:
 *   *Norm*             weight 1, bias 0; running_mean 0, running_var 1,
 *                      num_batches_tracked 0
 *   Embedding*         normal with the standard deviation 1
 *   *Linear, *Conv1d, *Conv2d, *Conv3d, *ConvTranspose?d
 *                      weight and bias uniform between +-1 / sqrt(fan_in), with
 *                      fan_in = elements of the weight / its first size
 * Other std: normal with that standard deviation for two dimensions or more, 0
 * for biases, and norms as above.
 */
enum pst_status pst_plan_set_init(struct pst_plan *plan, uint64_t seed,
                                  double std,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
