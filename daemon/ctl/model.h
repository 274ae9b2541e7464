// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_MODEL_H
#define PENSTOCK_DAEMON_CTL_MODEL_H
/* Opens and prints plans for commands. */
#include "daemon/common/model/open.h"

/* Opens PLAN, or cuts MODEL.pt2 into a plan like pstd_plan_open. In the second
 * case, prints the notes that `split` would print on standard error. */
enum pst_status pstctl_plan_open(const struct pstd_config *config,
                                 struct pstd_plan *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the plan's notes on standard error. */
void pstctl_print_notes(const struct pst_plan *plan);
/* Prints the text, then frees it, also on failure. json: the text is JSON. */
enum pst_status pstctl_print_text(struct pst_str *text, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the table of the plan's stages. */
enum pst_status pstctl_print_plan(const struct pst_plan *plan, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
