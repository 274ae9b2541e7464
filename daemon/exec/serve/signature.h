// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_SIGNATURE_H
#define PENSTOCK_DAEMON_EXEC_SERVE_SIGNATURE_H
/* What a plan takes and gives for one sample. Exec thread. */
#include "daemon/intake.h"
#include "stages/split/bind/bind.h"

/* Of a plan that is run forward in steps of so many microbatches; outputs that
 * mix the samples of a microbatch are left out. PST_ERR_UNSUPPORTED, by name:
 * no output is left, or the model remembers something from step to step.
 * *ret by pstd_signature_fini. */
enum pst_status pstd_signature_make(const struct pst_plan *plan,
                                    unsigned microbatches,
                                    struct pstd_signature *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
