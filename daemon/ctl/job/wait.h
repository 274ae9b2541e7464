// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_WAIT_H
#define PENSTOCK_DAEMON_CTL_JOB_WAIT_H
/* Waits for an event of a job. One thread. */
#include "daemon/ctl/print.h"

/* Shows events from number `from` on, until one whose name is in `names`
 * occurs; an event with the field asked=0 does not count. *ret: the frame of
 * that event, owned; NULL: the event may be among missed ones. Replaces conn if
 * it has to reconnect. */
enum pst_status pstctl_wait_for(struct pstctl_conn *conn, uint64_t from,
                                const char *const *names, size_t n,
                                struct pstctl_progress *progress,
                                pstd_frame **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Sends a request for a change and, once it is accepted, waits for an event
 * whose name is in `ends`. *ret: the event's frame, owned. */
enum pst_status pstctl_await_change(struct pstctl_conn *conn,
                                    pstctl_request *request,
                                    const char *const *ends, size_t n,
                                    pstd_frame **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the result of a finished run; returns the run's status. end: the run's
 * event train_end, which is used if the result cannot be requested, because the
 * daemon has ended or has the result of a later run; NULL: the event was
 * missed. */
enum pst_status pstctl_report_run(struct pstctl_conn *conn,
                                  const struct pstd_config *config,
                                  const struct pstctl_run_name *run,
                                  const pstctl_event *end,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* True if the event has the field asked=0: it was caused by no request, or by
 * an older one, so it does not answer the newest request. */
bool pstctl_is_unrequested(const pstctl_event *event);
/* True if the event is a train_end of a start that failed and is repeated. */
bool pstctl_is_repeated(const pstctl_event *event);
/* Returns the reason if the event is run_given_up: the ranks were started
 * again, but not the run. PST_OK: it is another event. */
enum pst_status pstctl_check_given_up(const pstctl_event *event,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if the event shows that an accepted request is lost, because the run has
 * ended or the ranks were started again. diag then says why. */
bool pstctl_is_lost(const pstctl_event *event, struct pst_diag *diag);
/* Prints a warning if the event of a change names parameters that another
 * optimizer updates from then on, so that their optimizer states begin anew.
 * Also prints the reason if the run is not evaluated any more. */
void pstctl_warn_changed(const pstctl_event *event);
/* Returns the status for an event that explains why nothing was changed:
 * PST_ERR_IO if a file could not be read or written, else PST_ERR_INPUT. */
enum pst_status pstctl_refused_status(const pstctl_event *event,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
