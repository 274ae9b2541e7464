// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_BYTES_H
#define PENSTOCK_DAEMON_COMMON_MODEL_BYTES_H
/*
 * Perplexity and bits per byte of a language model. Any thread.
 */
#include "daemon/common/config.h"
#include "stages/files/data.h"
#include "stages/run/data/mean.h"
#include "stages/split/plan.h"

/* The file of --token-bytes: byte t is the number of bytes of text that token t
 * stands for. A zeroed struct has no file. */
struct pstd_token_bytes {
    char *at; /* owned */
    size_t n;
};

/* True if exp(loss) is a perplexity: the loss is a mean of -log p of the
 * targets, without label smoothing, weights of classes or targets that are
 * probabilities. */
bool pstd_has_perplexity(const struct pst_plan *plan);
/* Reads --token-bytes, if it is given. PST_E_DATA_TOKEN_BYTES: the file is
 * empty, the loss is not a mean of -log p (pstd_has_perplexity), or its targets
 * are not tokens of the data. */
enum pst_status pstd_token_bytes_read(const struct pstd_config *config,
                                      const struct pst_plan *plan,
                                      struct pstd_token_bytes *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Lets the mean count the bytes of its targets, if these are known: from the
 * file, or one byte for each token if all files of `data` have tokens of one
 * byte. Borrows bytes while the mean exists. */
enum pst_status pstd_token_bytes_count(const struct pstd_token_bytes *bytes,
                                       const struct pst_plan *plan,
                                       const struct pst_data *data,
                                       struct pst_mean *mean,
                                       struct pst_diag *diag) PST_MUST_CHECK;
void pstd_token_bytes_fini(struct pstd_token_bytes *bytes);

#endif
