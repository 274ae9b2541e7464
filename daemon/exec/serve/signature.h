// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_SIGNATURE_H
#define PENSTOCK_DAEMON_EXEC_SERVE_SIGNATURE_H
/* Signature of a served model: its inputs and outputs per sample. Exec thread.
 */
#include "daemon/intake.h"
#include "stages/split/bind/bind.h"

/* Makes the signature of a plan that runs forward in steps of so many
 * microbatches. Outputs that mix the samples of a microbatch are not answered.
 * PST_ERR_UNSUPPORTED, with the name of the output or buffer: no output can be
 * answered, or the model keeps state from step to step. Release *ret with
 * pstd_signature_fini. */
enum pst_status pstd_signature_make(const struct pst_plan *plan,
                                    unsigned microbatches,
                                    struct pstd_signature *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
