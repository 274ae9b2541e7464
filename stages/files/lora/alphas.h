// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_ALPHAS_H
#define PENSTOCK_STAGES_FILES_LORA_ALPHAS_H
/*
 * The alpha that a file of adapters was trained with: peft's
 * adapter_config.json beside it, or the metadata of a file of all tensors that
 * we wrote. Without it A and B do not say what is added. Untrusted. One thread.
 */
#include "stages/base/str.h"
#include "stages/files/given.h"

#include <stdbool.h>

struct pst_alphas;

/* Reads what is there; nothing may be. Borrows the files until close. */
enum pst_status pst_alphas_open(const struct pst_given *files,
                                struct pst_alphas **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pst_alphas_close(struct pst_alphas *alphas);
/* That of the adapter of a layer, of this rank; peft: its tensors have peft's
 * names. *ret_known false: nothing says it. PST_ERR_UNSUPPORTED: it adds
 * something else than alpha / rank * B A. */
enum pst_status pst_alphas_find(const struct pst_alphas *alphas,
                                const char *module, int64_t rank, bool peft,
                                double *ret, bool *ret_known,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* The key of the metadata, and its value. */
void pst_alphas_key(const char *module, struct pst_str *ret);
void pst_alphas_value(double alpha, char ret[32]);

#endif
