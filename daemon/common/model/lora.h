// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_LORA_H
#define PENSTOCK_DAEMON_COMMON_MODEL_LORA_H
/* The option --lora PATTERN:rank=R[,alpha=X][,dropout=P]. One thread. */
#include "daemon/common/config.h"
#include "stages/frontend/model.h"

/* Adds the adapters that --lora asks for to a copy of the model. *ret borrows
 * `model`. */
enum pst_status pstd_lora_add(const struct pst_model *model,
                              const struct pstd_list *specs, uint64_t seed,
                              struct pst_model **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
