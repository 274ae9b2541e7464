// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_EVALUATE_H
#define PENSTOCK_DAEMON_EXEC_EVAL_EVALUATE_H
/*
 * Evaluations during a run (--eval-data). A second engine, with the same stages
 * on the same ranks but in eval mode, gets the current parameters and runs
 * forward. It has memory of its own, so that the training is not affected. Exec
 * thread; all functions except check, drop and close are COLLECTIVE.
 */
#include "daemon/exec/session.h"

/* Checks options that require each other. */
enum pst_status pstd_eval_check(const struct pstd_config *config,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Call after the engine is made, before the folder of checkpoints changes:
 * checks data, model and metric of evaluations and reserves their memory. */
enum pst_status pstd_eval_prepare(struct pstd_session *s,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Call after the resume: loads the results of earlier evaluations. Without
 * --eval-data only removes results that are not in this run's past. Sets
 * s->enough if the run had already stopped early. */
enum pst_status pstd_eval_open(struct pstd_session *s,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the run has gone back to the current step: steps after it will be
 * evaluated again. */
void pstd_eval_rewind(struct pstd_session *s);
/* True if the current step has to be evaluated and was not evaluated yet. */
bool pstd_eval_is_due(const struct pstd_session *s);
/* Call between steps: evaluates if it is due, saves the best checkpoint, and
 * sets s->enough. A failed evaluation is reported and does not affect the run.
 * A save in progress continues, and requested checkpoints and traces are made.
 * Other requests interrupt the evaluation, which is still due then; their
 * control words are added to *control. */
enum pst_status pstd_eval_step(struct pstd_session *s, unsigned *control,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Call before the model changes: frees the engine, which is made again when it
 * is next needed. */
void pstd_eval_drop(struct pstd_session *s);
/* Call after the model has changed: makes the engine again, if there is
 * --eval-data. If that is impossible, appends the reason to `why`. The run then
 * continues without evaluations: each evaluation tries again, and reports the
 * failure. */
enum pst_status pstd_eval_renew(struct pstd_session *s, struct pst_str *why,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pstd_eval_close(struct pstd_session *s);

#endif
