// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_VERIFY_H
#define PENSTOCK_STAGES_VERIFY_VERIFY_H
/*
 * Checks a plan in this process, by three questions:
 *  1. Does the first step give the same bits in the planned cut as without a
 *     cut? (Sums of parameters that several stages share may differ by 1e-6.)
 *  2. Does each gradient, in f64 on one microbatch, agree with the central
 *     difference of the loss?
 *  3. Do the f32 gradients of the cut step agree with those in f64?
 * Question 2 checks as many groups of parameters as 20 steps or 3 s leave time
 * for, at least one. Needs memory for the model twice, and for one microbatch
 * in f64.
 */
#include "stages/run/exec.h"
#include "stages/verify/report.h"

void pst_verify_report_fini(struct pst_verify_report *report);

/*
 * Verifies a plan. watch may be NULL. fill NULL: data is random, from
 * options->seed. The optimizer in the options is ignored. PST_ERR_UNSUPPORTED:
 * all gradients are 16-bit. PST_ERR_DIFFERENT names the first difference; then
 * and on PST_OK *ret is filled in, and must be released with
 * pst_verify_report_fini.
 */
enum pst_status pst_verify(struct pst_plan *plan,
                           const struct pst_exec_options *options,
                           pst_fill_fn fill, void *ctx,
                           const struct pst_verify_watch *watch,
                           struct pst_verify_report *ret,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
