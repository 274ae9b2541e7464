// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_SIGNALS_H
#define PENSTOCK_DAEMON_LOOP_SIGNALS_H
/*
 * What signals mean to a rank: SIGTERM and SIGINT end the job, SIGHUP opens the
 * log anew, SIGUSR1 saves a checkpoint, and that one and SIGCONT warn of the
 * end of the job. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* From here on, until the handles d->signals are closed. One daemon of a
 * process. */
void pstd_signals_start(struct pstd_daemon *d);

#endif
