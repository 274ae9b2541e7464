// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
/*
 * Checks between the steps of a run that detect silent failures. Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE, after each step. Compares copies of parameters as often as
 * --compare-replicas says. PST_ERR_INTERNAL: they differ; that ends the run. */
enum pst_status pstd_replicas_compare(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Begins the detection of stragglers; changes are reported by events. If memory
 * is short, it is disabled. */
void pstd_health_open(struct pstd_session *s);
void pstd_health_close(struct pstd_session *s);
/* Begins the detection anew, after a change of the model. */
void pstd_health_reset(struct pstd_session *s);
/* Call after each applied step: compares the ranks, and emits an event if a
 * straggler appears or disappears. seconds: duration of the step. */
void pstd_health_step(struct pstd_session *s, double seconds);
/* Returns PSTD_CTL_MEASURE if a step should be measured, else 0. */
unsigned pstd_health_words(const struct pstd_session *s);
/* COLLECTIVE. Measures the step; call it if all ranks have PSTD_CTL_MEASURE in
 * the step's control words. */
enum pst_status pstd_health_measure(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
