// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
#define PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
/*
 * Files of evaluations in the --checkpoint folder: results of evaluations, and
 * a folder with the best checkpoint. Rank 0 only; exec thread.
 */
#include "daemon/common/steps/evals.h"
#include "daemon/exec/session.h"

/* A name in the --checkpoint folder. */
#define PSTD_BEST_FOLDER PST_CHECKPOINT_BEST

/* Reads the evaluations in this run's past: none if it is a new run, or if the
 * recorded ones are of other data or of another metric. */
enum pst_status pstd_best_read_past(const struct pstd_session *s,
                                    const char *path, struct pstd_evals *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Looks into best/: *ret becomes the best evaluation whose checkpoint is there,
 * and not bad or damaged, or is being saved (NULL: none). Those that are better
 * become lost, except that of step `but`. After an error nothing has
 * changed. */
enum pst_status pstd_best_find(const struct pstd_session *s,
                               struct pstd_evals *past, uint64_t but,
                               const struct pstd_eval **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns PST_ERR_CONFIG if --keep-best would write to a folder that another
 * run uses as its --checkpoint. */
enum pst_status pstd_best_check_folder(const struct pstd_session *s,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Moves best checkpoints after step `above` into best/former-N: they are not in
 * this run's past. Changes nothing in a folder that another run uses as its
 * --checkpoint. */
enum pst_status pstd_best_set_aside(struct pstd_session *s, uint64_t above,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the run owns its folder: removes evaluations that are not in its
 * past, and sets their best checkpoints aside. Does so without --eval-data too,
 * since a later start may have it. */
enum pst_status pstd_best_clean(struct pstd_session *s,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
