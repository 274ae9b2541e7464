// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_WIDE_H
#define PENSTOCK_STAGES_VERIFY_WIDE_H
/*
 * A plan of one stage in f64, on the heap, with the data of microbatch 0 of
 * step 0: loss, gradients, and slopes of the loss by central differences. For
 * pst_verify. One thread.
 */
#include "stages/run/exec.h"

struct pst_wide;

/* Borrows plan (which has a loss) until freed. Runs forward and backward.
 * PST_ERR_UNSUPPORTED: an operator has no kernel in f64. */
enum pst_status pst_wide_new(struct pst_plan *plan, uint64_t seed,
                             pst_fill_fn fill, void *ctx, struct pst_wide **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_wide_free(struct pst_wide *wide);

/* At the parameters as they are; it need not be finite. */
double pst_wide_loss(const struct pst_wide *wide);
/* Gradient of plan->params[i], all elements in order; NULL: nothing reaches
 * it, or it wants none. */
const double *pst_wide_grad(const struct pst_wide *wide, unsigned i);
/* Floating-point operations of one forward. */
double pst_wide_flops(const struct pst_wide *wide);

/*
 * Moves the chosen parameters (by index, true: chosen) a little along random
 * directions and compares the change of the loss with their gradients.
 * attempt: each below PST_WIDE_ATTEMPTS takes another direction and step.
 * *ret_error: the difference over what is allowed; at most 1 is right.
 */
#define PST_WIDE_ATTEMPTS 5
enum pst_status pst_wide_check(struct pst_wide *wide, const bool *chosen,
                               unsigned attempt, double *ret_error,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Whether the loss jumps at these parameters, as it does where a choice (of
 * topk, say) hangs on a tie: then it has no slope there. */
enum pst_status pst_wide_jumps(struct pst_wide *wide, const bool *chosen,
                               bool *ret, struct pst_diag *diag) PST_MUST_CHECK;

#endif
