// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_MERGE_H
#define PENSTOCK_STAGES_FILES_LORA_MERGE_H
/* Merges an adapter into its weight. One thread. */
#include "stages/files/lora/adapters.h"
#include "stages/files/safetensors.h"

/* Finds the entry with a tensor's values, which is borrowed until the file is
 * written. */
typedef enum pst_status (*pst_state_find_fn)(
    void *ctx, const char *tensor, const struct pst_safetensors_entry **ret,
    struct pst_diag *diag);

/* Adds alpha / rank * B A to the weight, whose data is contiguous: computes in
 * f32 (in f64 for an f64 weight) and rounds once. find must find A and B. */
enum pst_status pst_adapter_merge(const struct pst_adapter *adapter,
                                  pst_state_find_fn find, void *ctx,
                                  const struct pst_safetensors_entry *weight,
                                  void *data,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
