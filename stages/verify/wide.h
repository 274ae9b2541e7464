// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_WIDE_H
#define PENSTOCK_STAGES_VERIFY_WIDE_H
/*
 * A plan of one stage in f64, on the heap, with the data of microbatch 0 of
 * step 0. Computes loss, gradients and central differences of the loss, for
 * pst_verify. One thread.
 */
#include "stages/run/exec.h"

struct pst_wide;

struct pst_wide_options {
    uint64_t seed;
    unsigned threads;
    /* Moves parameters a little away from kinks. Parameters that are all zero,
     * for example, are at the kink of each relu. */
    bool off_kinks;
};

/* Borrows plan (which has a loss) until freed. Runs forward and backward.
 * PST_ERR_UNSUPPORTED: an operator has no kernel in f64. */
enum pst_status pst_wide_new(struct pst_plan *plan,
                             const struct pst_wide_options *options,
                             pst_fill_fn fill, void *ctx, struct pst_wide **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_wide_free(struct pst_wide *wide);

/* Returns the loss at the current parameters; may be infinite or NaN. */
double pst_wide_loss(const struct pst_wide *wide);
/* Returns the gradient of plan->params[i], all elements in order; NULL if it
 * has no gradient or requires none. */
const double *pst_wide_grad(const struct pst_wide *wide, unsigned i);
/* Returns the duration of one forward pass in seconds. */
double pst_wide_seconds(const struct pst_wide *wide);

/*
 * Moves the chosen parameters (true, by index) along a random direction and
 * compares the change of the loss with their gradients. Each attempt uses
 * another direction. Attempts below PST_WIDE_ATTEMPTS also use different step
 * sizes.
 */
#define PST_WIDE_ATTEMPTS 5
/*
 * Errors of a gradient relative to the allowed error; above 1 the gradient is
 * wrong. plain: the rounding of the loss is allowed. kinked: if the one-sided
 * differences do not converge with smaller steps, everything between the two is
 * also allowed. This happens at a kink, such as that of relu at 0: a right
 * gradient lies between them in every direction, a wrong one lies outside in
 * some directions. apart: half the distance of the one-sided differences,
 * relative to a typical derivative; above 1, a gradient that is twice too large
 * lies between them, too.
 */
struct pst_wide_error {
    double plain, kinked, apart;
};
enum pst_status pst_wide_check(struct pst_wide *wide, const bool *chosen,
                               unsigned attempt, struct pst_wide_error *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Sets *ret to true if the loss is discontinuous at these parameters, for
 * example at a tie in topk: it has no derivative there. */
enum pst_status pst_wide_is_discontinuous(struct pst_wide *wide,
                                          const bool *chosen, bool *ret,
                                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
