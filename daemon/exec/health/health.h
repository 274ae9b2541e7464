// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
/*
 * What a run looks at between its steps, so that nothing goes wrong unseen.
 * Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE, after each step. By --compare-replicas: copies that differ end
 * the run (PST_ERR_INTERNAL). */
enum pst_status pstd_replicas_compare(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Who holds the others up: learnt from the first step on, told as events. What
 * there is no memory for is not looked at. */
void pstd_health_open(struct pstd_session *s);
void pstd_health_close(struct pstd_session *s);
/* The model has changed: all is learnt anew. */
void pstd_health_reset(struct pstd_session *s);
/* A step was applied, which took so long. */
void pstd_health_step(struct pstd_session *s, double seconds);
/* Control words of this rank. */
unsigned pstd_health_words(const struct pstd_session *s);
/* COLLECTIVE, if all ranks have PSTD_CTL_MEASURE in the words of a step. */
enum pst_status pstd_health_measure(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
