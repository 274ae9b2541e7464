// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_TOKENS_H
#define PENSTOCK_STAGES_RUN_DATA_TOKENS_H
/*
 * Weights of microbatches by the targets that the loss does not ignore, so
 * that a step has the mean of the whole batch also where lines are padded.
 * What the loss sees as its target is computed from the model's inputs, by the
 * nodes of the model between them. Exec thread only.
 */
#include "stages/run/exec.h"

struct pst_tokens;

/* tail: of the last microbatches (struct pst_exec_options), or NULL. Refuses
 * by name losses that ignore no targets or are no mean of them. Borrows the
 * plans and fill_ctx. Returns owned. */
enum pst_status pst_tokens_new(struct pst_plan *plan, struct pst_plan *tail,
                               unsigned microbatches, unsigned n_tail,
                               pst_fill_fn fill, void *fill_ctx,
                               struct pst_tokens **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_tokens_free(struct pst_tokens *tokens);

/*
 * Whether the model moves its targets by itself: the loss never sees the first
 * label of a row, whatever it is. Then labels that are the next tokens already
 * are those after the next. *ret: false also where that cannot be known.
 * `input` is the plan's input with the labels.
 */
enum pst_status pst_tokens_shift(struct pst_plan *plan, unsigned input,
                                 bool *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* A pst_weigh_fn; ctx is a struct pst_tokens. */
enum pst_status pst_tokens_weigh(void *ctx, uint64_t step, double *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
