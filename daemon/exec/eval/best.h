// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
#define PENSTOCK_DAEMON_EXEC_EVAL_BEST_H
/*
 * Files of evaluations in the --checkpoint folder: results of evaluations, and
 * a folder with the best checkpoint. Rank 0 only; exec thread.
 */
#include "daemon/common/steps/evals.h"
#include "daemon/exec/session.h"

/* Name of the folder of the best checkpoint in the --checkpoint folder. */
#define PSTD_BEST_FOLDER PST_CHECKPOINT_BEST

/* Reads the evaluations in this run's past: none if it is a new run, or if the
 * recorded ones are of other data or of another metric. */
enum pst_status pstd_best_read_past(const struct pstd_session *s,
                                    const char *path, struct pstd_evals *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Reads best/. *ret: the best evaluation that has a checkpoint there, not known
 * as bad or damaged, or whose checkpoint is being saved; NULL: there is none.
 * Marks better evaluations as lost, except that of step `but`. After an error
 * `past` is unchanged. */
enum pst_status pstd_best_find(const struct pstd_session *s,
                               struct pstd_evals *past, uint64_t but,
                               const struct pstd_eval **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Removes from best/ checkpoints that are older than the best evaluation whose
 * checkpoint is there and good, and rests of saves. One that is being saved
 * does not count, since its save may fail. The run owns the folder, and
 * pstd_best_check_folder() has succeeded. */
enum pst_status pstd_best_remove_older(const struct pstd_session *s,
                                       const struct pstd_evals *past,
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
/* Call when the run owns its folder: removes evaluations that are not in the
 * run's past, and sets their best checkpoints aside; without --eval-data, too,
 * since a later start may have it. */
enum pst_status pstd_best_clean(struct pstd_session *s,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
