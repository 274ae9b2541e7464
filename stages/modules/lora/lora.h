// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_LORA_LORA_H
#define PENSTOCK_STAGES_MODULES_LORA_LORA_H
/*
 * Adds low-rank adapters to linear layers (stages/files/lora/adapters.h).
 *
 * Names and start values are those of peft: FQN.lora_A.default.weight is
 * uniform in +-1/sqrt(in), FQN.lora_B.default.weight is 0, so the outputs of
 * the model do not change. All other parameters are frozen. Nodes keep their
 * ids, and symbolic sizes stay symbolic.
 *
 * Calls with the same weight tensor share one adapter: repeated calls of a
 * module, its other names, tied layers.
 *
 * One thread.
 */
#include "stages/frontend/model.h"

/*
 * Adds adapters. If several patterns match a layer, the last one counts. *ret
 * borrows model, which must outlive it. seed: for the start values of A.
 * PST_ERR_INPUT: nothing matches (with the nearest name), or the rank is not
 * possible for the layer. PST_ERR_UNSUPPORTED: a match is not a linear layer.
 * Patterns with * or ? skip modules without parameters of their own.
 */
enum pst_status pst_model_adapt(const struct pst_model *model,
                                const struct pst_lora *loras, size_t n,
                                uint64_t seed, struct pst_model **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
