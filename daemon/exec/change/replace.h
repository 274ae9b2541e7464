// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_REPLACE_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_REPLACE_H
/* A module that comes into a run's model. Exec thread. */
#include "daemon/change_order.h"
#include "stages/split/plan.h"

/* Zero-initialised is none; both are the caller's to close, the model first. */
struct pstd_replaced {
    struct pst_model *module, *model; /* what comes, and with it */
    unsigned calls;
    unsigned frozen; /* parameters that stay so */
};

/*
 * `old` is `before` made again. What the run has frozen stays frozen: a new
 * parameter is if the old one of its name was, or if nothing of the old module
 * was trained. PST_ERR_UNSUPPORTED: an adapter would be lost. Also after an
 * error *ret has what is to be closed.
 */
enum pst_status pstd_replace(const struct pst_plan *before,
                             const struct pst_model *old,
                             const struct pstd_change_order *order,
                             const char *path, struct pstd_replaced *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_UNSUPPORTED: a gradient that went through the old module does not go
 * through the new one, so that parameters before it would be trained no more.
 */
enum pst_status pstd_replaced_check(const struct pst_plan *before,
                                    const struct pst_plan *after,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Did it come with the new module? */
bool pstd_replaced_has(const struct pstd_replaced *replaced, const char *fqn);

#endif
