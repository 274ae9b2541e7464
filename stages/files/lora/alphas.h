// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_ALPHAS_H
#define PENSTOCK_STAGES_FILES_LORA_ALPHAS_H
/*
 * The alpha that given adapters were trained with, from peft's
 * adapter_config.json beside the file, or from the metadata of a file that we
 * wrote. Without alpha, A and B do not determine the update of W. Untrusted.
 * One thread.
 */
#include "stages/base/str.h"
#include "stages/files/given.h"

#include <stdbool.h>

struct pst_alphas;

/* Reads the configuration, which may be missing. Borrows `files` until
 * close. */
enum pst_status pst_alphas_open(const struct pst_given *files,
                                struct pst_alphas **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pst_alphas_close(struct pst_alphas *alphas);
/* Returns the alpha of the adapter of a layer with this rank; peft: its tensors
 * have peft's names. *ret_known is false if the alpha is not given.
 * PST_ERR_UNSUPPORTED: the adapter adds something other than alpha / rank * B
 * A. */
enum pst_status pst_alphas_find(const struct pst_alphas *alphas,
                                const char *module, int64_t rank, bool peft,
                                double *ret, bool *ret_known,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Write the metadata key and value for an alpha. */
void pst_alphas_key(const char *module, struct pst_str *ret);
void pst_alphas_value(double alpha, char ret[32]);

#endif
