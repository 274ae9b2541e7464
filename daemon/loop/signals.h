// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_SIGNALS_H
#define PENSTOCK_DAEMON_LOOP_SIGNALS_H
/*
 * Signals of a rank: SIGTERM and SIGINT end the job, SIGHUP reopens the log,
 * SIGUSR1 saves a checkpoint, and SIGUSR1 and SIGCONT warn that the job may end
 * soon. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* Ignores SIGHUP and SIGUSR1 from the beginning of main() until signals_start,
 * so that they do not end a rank. */
void pstd_signals_ignore(void);
/* Handles signals from here on until close. One daemon per process. */
void pstd_signals_start(struct pstd_daemon *d);
/* Closes the signal handles in d->signals. */
void pstd_signals_close(struct pstd_daemon *d);

#endif
