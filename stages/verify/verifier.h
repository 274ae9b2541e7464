// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_VERIFIER_H
#define PENSTOCK_STAGES_VERIFY_VERIFIER_H
/* State of a verification, shared by the files of this folder. One thread. */
#include "stages/run/dump.h"
#include "stages/verify/report.h"
#include "stages/verify/wide.h"

struct verifier {
    struct pst_plan *plan, *joined;
    struct pst_exec_options options; /* options of the cut run */
    pst_fill_fn fill;
    void *ctx;
    const struct pst_verify_watch *watch; /* NULL: no progress is reported */
    struct pst_verify_report report;
    bool no_number; /* a gradient is NaN in f32 and finite in f64 */
    double seconds; /* duration of the last step */
    double step;    /* duration of an uncut step */
    double whole;   /* duration of an uncut step, with its preparation */
    /* start and deadline of the verification, by pst_now */
    double begin, until;
    struct pst_diag *diag;
};

/* Indices of parameters whose gradients finite differences left undecided. */
struct pst_unsure PST_VEC(unsigned);

/* Reports what is computed next. */
void pst_verifier_report(const struct verifier *v, const char *fmt, ...)
    PST_PRINTF(2, 3);
/* Counts a difference and adds it to the text of the report; the first one is
 * named in the report. */
void pst_verifier_differs(struct verifier *v, const char *name, const char *fmt,
                          ...) PST_PRINTF(3, 4);
/* Runs the first step of a plan; *ret holds all tensors that the step
 * computed. */
enum pst_status pst_verifier_step(struct verifier *v, struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_dump **ret) PST_MUST_CHECK;
/* Checks the gradients of the parameters in list against finite differences.
 * Adds parameters at a kink or a jump to *unsure. where: for the report. */
enum pst_status pst_verifier_differences(
    struct verifier *v, struct pst_wide *wide, const unsigned *list, unsigned n,
    const char *where, struct pst_unsure *unsure) PST_MUST_CHECK;
/* Counts the undecided gradients in the report and adds their names to its
 * text. */
void pst_verifier_unchecked(struct verifier *v, const struct pst_unsure *unsure,
                            const char *why);
/* Compares the f32 gradients of the parameters in list with f64 (precision.c).
 */
enum pst_status pst_verifier_precision(struct verifier *v,
                                       const struct pst_wide *wide,
                                       const unsigned *list,
                                       unsigned n) PST_MUST_CHECK;

#endif
