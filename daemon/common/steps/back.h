// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_STEPS_BACK_H
#define PENSTOCK_DAEMON_COMMON_STEPS_BACK_H
/* Evaluations in the --checkpoint folder of a run that goes back to an earlier
 * step: later ones are not in its past any more. By the process that owns the
 * folder; any thread. */
#include "stages/files/checkpoint/checkpoint.h"

/* Forgets the evaluations after that step in the file. */
enum pst_status pstd_back_evals(const char *path, uint64_t step,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Moves best checkpoints after that step from `dir`, the folder best/, into
 * dir/former-N. Changes nothing in a folder that another run uses as its
 * --checkpoint. */
enum pst_status pstd_back_best(const char *dir, uint64_t step,
                               struct pst_checkpoint_former *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
