// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_MODEL_H
#define PENSTOCK_DAEMON_CTL_MODEL_H
/* Prints plans for commands. */
#include "daemon/common/model/open.h"

/* Prints the text, then frees it, also on failure. json: the text is JSON. */
enum pst_status pstctl_print_text(struct pst_str *text, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the table of the plan's stages. */
enum pst_status pstctl_print_plan(const struct pst_plan *plan, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
