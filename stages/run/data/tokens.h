// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_TOKENS_H
#define PENSTOCK_STAGES_RUN_DATA_TOKENS_H
/*
 * Weights of microbatches by the number of targets that the loss does not
 * ignore, so that a step has the mean of the whole batch even if rows are
 * padded. The nodes of the model between its inputs and the loss compute the
 * targets. Exec thread only.
 */
#include "stages/run/exec.h"

struct pst_tokens;

/* Creates the counter of targets. tail: plan of the last microbatches (struct
 * pst_exec_options), or NULL. Refuses losses that cannot ignore targets, or
 * that are not the mean over the targets. Borrows the plans and fill_ctx.
 * Returns owned. */
enum pst_status pst_tokens_new(struct pst_plan *plan, struct pst_plan *tail,
                               unsigned microbatches, unsigned n_tail,
                               pst_fill_fn fill, void *fill_ctx,
                               struct pst_tokens **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_tokens_free(struct pst_tokens *tokens);
/* Sets the number of microbatches of the next steps, which have no tail
 * microbatches. */
void pst_tokens_set_microbatches(struct pst_tokens *tokens,
                                 unsigned microbatches);

/*
 * Sets *ret to true if the model shifts its targets itself, so that the loss
 * never sees the first label of a row. Labels that are already the next tokens
 * would then be shifted twice. *ret is false if this cannot be determined.
 * `input` is the plan's input with the labels.
 */
enum pst_status pst_tokens_shift(struct pst_plan *plan, unsigned input,
                                 bool *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Makes the next calls of pst_tokens_weigh also count the bytes of text that
 * the targets stand for: bytes[t] for target t, or 1 if bytes is NULL. bytes
 * has n elements and is borrowed. If n is too small, pst_tokens_weigh fails
 * with PST_E_DATA_TOKEN_BYTES. */
enum pst_status pst_tokens_count_bytes(struct pst_tokens *tokens,
                                       const unsigned char *bytes, size_t n,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Returns, for each microbatch of the newest pst_tokens_weigh, the bytes of the
 * targets that the loss does not ignore; NULL: they are not counted. */
const double *pst_tokens_bytes(const struct pst_tokens *tokens);

/* A pst_weigh_fn; ctx is a struct pst_tokens. */
enum pst_status pst_tokens_weigh(void *ctx, uint64_t step, double *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
