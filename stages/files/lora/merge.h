// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_MERGE_H
#define PENSTOCK_STAGES_FILES_LORA_MERGE_H
/* A weight with what its adapter adds. One thread. */
#include "stages/files/lora/adapters.h"
#include "stages/files/safetensors.h"

/* The entry that has a tensor's values; borrowed until the file is written. */
typedef enum pst_status (*pst_state_find_fn)(
    void *ctx, const char *tensor, const struct pst_safetensors_entry **ret,
    struct pst_diag *diag);

/* Adds alpha / rank * B A to the weight (contiguous, as its entry has it): in
 * f32, or in f64 of such a weight, rounded once. find knows A and B. */
enum pst_status pst_adapter_merge(const struct pst_adapter *adapter,
                                  pst_state_find_fn find, void *ctx,
                                  const struct pst_safetensors_entry *weight,
                                  void *data,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
