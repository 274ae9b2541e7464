// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_ONCE_H
#define PENSTOCK_DAEMON_LOOP_ONCE_H
/*
 * Begins and ends the run of a job for one run (--one-run) without a request by
 * a client; continues an unfinished run of a job with --stay (stay.h). In other
 * jobs these functions do nothing, except that pstd_once_trim truncates the
 * output of `penstock run`. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* Call when the job is ready: begins the run or the serving, or continues an
 * unfinished run. */
void pstd_once_ready(struct pstd_daemon *d);
/* True if a run that ends for that reason now is tried again: it was to
 * continue an interrupted run, has failed before its first step, and for a
 * temporary reason. */
bool pstd_once_is_retried(const struct pstd_daemon *d,
                          const struct pst_diag *why);
/* Call each second: continues a run that was delayed. */
void pstd_once_tick(struct pstd_daemon *d);
/* Call when the run has ended: ends a job for one run, and forgets the run of a
 * job that stays unless it is tried again. */
void pstd_once_end(struct pstd_daemon *d);
/* Call periodically: keeps only the newest part of the file beside the socket
 * with the output of the ranks and their launcher. */
void pstd_once_trim(const struct pstd_daemon *d);
/* Call when the exec thread has ended: writes the result to a file beside the
 * socket. */
void pstd_once_record(struct pstd_daemon *d);

#endif
