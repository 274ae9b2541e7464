// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_VERIFIER_H
#define PENSTOCK_STAGES_VERIFY_VERIFIER_H
/* State of a verification, shared by the files of this folder. One thread. */
#include "stages/run/dump.h"
#include "stages/verify/report.h"
#include "stages/verify/wide.h"

struct verifier {
    struct pst_plan *plan, *joined;
    struct pst_exec_options options; /* of the cut */
    pst_fill_fn fill;
    void *ctx;
    const struct pst_verify_watch *watch; /* or NULL */
    struct pst_verify_report report;
    bool no_number;      /* a gradient in f32 is none, which in f64 is one */
    double seconds;      /* of the last step that was run */
    double step;         /* of an uncut one */
    double whole;        /* of an uncut one, with what goes before it */
    double begin, until; /* when the verification began, and has to end */
    struct pst_diag *diag;
};

/* Parameters, by index, whose gradients finite differences left undecided. */
struct pst_unsure PST_VEC(unsigned);

/* What is done now. */
void pst_verifier_tell(const struct verifier *v, const char *fmt, ...)
    PST_PRINTF(2, 3);
/* Counts a difference; the first one is named in the report. */
void pst_verifier_differs(struct verifier *v, const char *name, const char *fmt,
                          ...) PST_PRINTF(3, 4);
/* Runs the first step of a plan; *ret holds everything that it computed. */
enum pst_status pst_verifier_step(struct verifier *v, struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_dump **ret) PST_MUST_CHECK;
/* Checks the gradients of the parameters in list against finite differences.
 * Adds those at a kink or a jump to *unsure. where: for the report. */
enum pst_status pst_verifier_differences(
    struct verifier *v, struct pst_wide *wide, const unsigned *list, unsigned n,
    const char *where, struct pst_unsure *unsure) PST_MUST_CHECK;
/* Names and counts them in the report. */
void pst_verifier_unchecked(struct verifier *v, const struct pst_unsure *unsure,
                            const char *why);
/* Are the gradients of the parameters in list those in f64 (precision.c)? */
enum pst_status pst_verifier_precision(struct verifier *v,
                                       const struct pst_wide *wide,
                                       const unsigned *list,
                                       unsigned n) PST_MUST_CHECK;

#endif
