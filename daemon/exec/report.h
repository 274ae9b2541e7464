// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_REPORT_H
#define PENSTOCK_DAEMON_EXEC_REPORT_H
/* Events about the steps of a run. Exec thread. */
#include "daemon/exec/session.h"

/* Reports the newest step, with means over the steps since the last event.
 * must: the event is not dropped, even if steps have to wait for the log. */
void pstd_report_step(struct pstd_session *s, bool must);
/* Reports the newest step if it has no event yet. Call before an event that
 * follows the step. */
void pstd_report_newest(struct pstd_session *s);
/* Takes the loss of a step, and reports it if it is a spike: far above the
 * previous ones. */
void pstd_report_spike(struct pstd_session *s, double loss);
/* Emits an event whose only field is the current step. */
void pstd_report_at(struct pstd_session *s, enum pstd_event event);
/* Reports that a step was not applied, and why. */
void pstd_report_fault(struct pstd_session *s, uint64_t step,
                       const struct pst_diag *diag);
/* Reports a step that --on-nan or --on-spike left out
 * (PSTD_EVENT_STEP_SKIPPED), or for which the run went back to a checkpoint
 * (PSTD_EVENT_ROLLED_BACK). by: s->numbers or s->spiked. */
void pstd_report_skip(struct pstd_session *s, enum pstd_event event,
                      const struct pstd_numbers *by, uint64_t step,
                      const char *text);
/* Reports a step that was left out, since its gradients overflowed; the loss
 * scale is halved for the next one. */
void pstd_report_overflow(struct pstd_session *s, uint64_t step,
                          const struct pst_step_result *r);
/* Reports that another program has written to a data file, once in a run. */
void pstd_report_written(struct pstd_session *s);
/* Reports an update that kept elements whose new values would not be finite. */
void pstd_report_partial(struct pstd_session *s, uint64_t step,
                         const char *text);

#endif
