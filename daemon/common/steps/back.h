// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_STEPS_BACK_H
#define PENSTOCK_DAEMON_COMMON_STEPS_BACK_H
/* Removes evaluations in the --checkpoint folder of a run that goes back to an
 * earlier step: those of later steps are no longer in its past. Only for the
 * process that owns the folder; any thread. */
#include "stages/files/checkpoint/checkpoint.h"

/* Removes the evaluations after that step from the file. */
enum pst_status pstd_back_evals(const char *path, uint64_t step,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Moves best checkpoints after that step from `dir`, the folder best/, into
 * dir/former-N. Changes nothing in a folder that another run uses as its
 * --checkpoint. */
enum pst_status pstd_back_best(const char *dir, uint64_t step,
                               struct pst_checkpoint_former *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
