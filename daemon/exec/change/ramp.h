// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_RAMP_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_RAMP_H
/*
 * The number of microbatches of each step, by --microbatches. The numbers of
 * the ramp that the run was started with are known before its engine is made,
 * which prepares all of them. Exec thread.
 */
#include "daemon/exec/session.h"

/* Puts the numbers of the run's ramp into s->options; later changes of the
 * option do not affect them. */
void pstd_ramp_prepare(struct pstd_session *s);

/* COLLECTIVE, between steps: gives engine, data and batch the number of
 * microbatches of the next step, s->step. Data continue after the last sample
 * that was read. */
enum pst_status pstd_ramp_update(struct pstd_session *s,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Not collective. Does the same, with data that begin at position `place`. If
 * steps were made since then, the data begin where this run's steps would have
 * left them; if `place` is unknown, where all earlier steps would have.
 * skip_to: NULL, or the later position at which the data begin instead
 * (pst_data_skip). */
enum pst_status pstd_ramp_begin(struct pstd_session *s,
                                const struct pst_data_place *place,
                                const struct pst_data_place *skip_to,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Reports that the number of microbatches of a step differs from `before`, the
 * number of the step before. */
void pstd_ramp_emit(struct pstd_session *s, unsigned before);

#endif
