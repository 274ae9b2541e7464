// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_HEALTH_H
/*
 * Checks between the steps of a run that detect silent failures. Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE, after each step. --compare-replicas: copies that differ end the
 * run (PST_ERR_INTERNAL). */
enum pst_status pstd_replicas_compare(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Detection of stragglers: learns from the first steps on, reports events. If
 * memory is out, it is disabled. */
void pstd_health_open(struct pstd_session *s);
void pstd_health_close(struct pstd_session *s);
/* Learns again, after a change of the model. */
void pstd_health_reset(struct pstd_session *s);
/* Reports that a step was applied, and its duration. */
void pstd_health_step(struct pstd_session *s, double seconds);
/* Returns this rank's control words. */
unsigned pstd_health_words(const struct pstd_session *s);
/* COLLECTIVE; call if all ranks have PSTD_CTL_MEASURE in a step's control
 * words. */
enum pst_status pstd_health_measure(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
