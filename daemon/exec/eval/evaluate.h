// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_EVALUATE_H
#define PENSTOCK_DAEMON_EXEC_EVAL_EVALUATE_H
/*
 * Evaluations of a run while it goes on (--eval-data): an engine of the same
 * stages on the same ranks, in the mode of model.eval(), is given the
 * parameters as they are and runs forward. It has memory of its own, so that
 * nothing of the training changes. Exec thread; all but drop and close
 * COLLECTIVE.
 */
#include "daemon/exec/session.h"

/* Options that need each other. */
enum pst_status pstd_eval_check(const struct pstd_config *config,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Behind the resume: what was found before, and the memory. Nothing without
 * --eval-data. s->enough: the run was over before. */
enum pst_status pstd_eval_open(struct pstd_session *s,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Behind a step: evaluates if it is due, keeps the best one, and sets
 * s->enough. What cannot be evaluated is told, and costs the run nothing.
 * *control: stops that came meanwhile are added. */
enum pst_status pstd_eval_step(struct pstd_session *s, unsigned *control,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The model is about to be another one: the engine is made again when it is
 * needed. */
void pstd_eval_drop(struct pstd_session *s);
void pstd_eval_close(struct pstd_session *s);

#endif
