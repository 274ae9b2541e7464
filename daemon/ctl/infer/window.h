// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_INFER_WINDOW_H
#define PENSTOCK_DAEMON_CTL_INFER_WINDOW_H
/* The inputs and outputs of a model that continues a text, and the tokens that
 * its next step reads. */
#include "daemon/common/config.h"
#include "stages/files/data/roles.h"
#include "stages/split/plan.h"

struct pstctl_window {
    const struct pst_plan *plan;
    struct pst_role_input *roles; /* owned; the role of each input */
    unsigned tokens;              /* index of the input (B, T) */
    unsigned logits;              /* index of the output (B, T, V) */
    bool cached;                  /* T is 1 and buffers cache earlier tokens */
    int64_t length; /* T, the tokens that the model reads at once */
    int64_t vocab;  /* V, the size of the vocabulary */
    int64_t n;      /* number of tokens in the window */
    int64_t *at;    /* ids of the tokens; array of T entries; owned */
    int64_t first;  /* position of at[0] in the text */
};

/* Finds the tokens among the inputs and the logits among the outputs. Refuses a
 * model whose logits depend on an input that does not follow from the text.
 * Borrows the plan. *ret must be zeroed before, and must be freed by fini even
 * after a failure. */
enum pst_status pstctl_window_find(const struct pst_plan *plan,
                                   const struct pstd_config *config,
                                   struct pstctl_window *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_window_fini(struct pstctl_window *w);
/* Appends a token; drops the oldest token of a full window. */
void pstctl_window_append(struct pstctl_window *w, int64_t token);
/* A pst_fill_fn; ctx is a struct pstctl_window. Row 0 of the tokens gets the
 * window, other rows get zeros. */
enum pst_status pstctl_window_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *diag);

#endif
