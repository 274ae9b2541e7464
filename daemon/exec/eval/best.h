// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
#define PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
/*
 * Evaluations have a file of results and a folder of the best checkpoint in the
 * --checkpoint folder. Rank 0 only; exec thread.
 */
#include "daemon/exec/session.h"

/* Names in the --checkpoint folder. */
#define PSTD_BEST_FOLDER PST_CHECKPOINT_BEST
#define PSTD_BEST_PAST   "evaluations"

/* True if earlier evaluations are not in this run's past: it is a new run, or
 * it evaluates with other data. */
bool pstd_best_is_anew(const struct pstd_session *s);
/* PST_ERR_CONFIG: --keep-best would write to a folder that a run has taken as
 * its --checkpoint. */
enum pst_status pstd_best_is_free(const struct pstd_session *s,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Moves best checkpoints after step `above` into best/former-N: they are not in
 * this run's past. Leaves a folder that a run has taken as its --checkpoint. */
enum pst_status pstd_best_set_aside(struct pstd_session *s, uint64_t above,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the run owns its folder: removes evaluations that are not in its
 * past, and sets their best checkpoints aside. Does so without --eval-data too,
 * since a later start may have it. */
enum pst_status pstd_best_settle(struct pstd_session *s,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
