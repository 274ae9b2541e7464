// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_LORA_LORA_H
#define PENSTOCK_STAGES_MODULES_LORA_LORA_H
/*
 * Low-rank adapters on linear layers (stages/files/lora/adapters.h), named and
 * begun as peft does: FQN.lora_A.default.weight is uniform in +-1/sqrt(in),
 * FQN.lora_B.default.weight is 0, so that the model is what it was. All other
 * parameters are frozen. Nodes keep their ids, sizes stay free.
 *
 * Calls whose weight is one tensor share one adapter: repeated calls of a
 * module, its other names, tied layers.
 *
 * One thread.
 */
#include "stages/frontend/model.h"

/*
 * Of several patterns that match a layer the last counts. *ret borrows model,
 * which must outlive it; seed: of A's numbers. PST_ERR_INPUT: nothing matches,
 * with the nearest name, or a rank that the layer cannot have;
 * PST_ERR_UNSUPPORTED: what matches is no linear layer. With * or ? modules
 * that have no parameters of their own are passed over.
 */
enum pst_status pst_model_adapt(const struct pst_model *model,
                                const struct pst_lora *loras, size_t n,
                                uint64_t seed, struct pst_model **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
