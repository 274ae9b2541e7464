// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_SIGNALS_H
#define PENSTOCK_DAEMON_LOOP_SIGNALS_H
/*
 * What signals mean to a rank: SIGTERM and SIGINT end the job, SIGHUP opens the
 * log anew, SIGUSR1 saves a checkpoint, and that one and SIGCONT warn of the
 * end of the job. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* While nobody takes them, SIGHUP and SIGUSR1 end no rank: at the begin of
 * main(), there is nothing to save or to open anew. */
void pstd_signals_ignore(void);
/* From here on, until they are closed. One daemon of a process. */
void pstd_signals_start(struct pstd_daemon *d);
/* Closes the handles d->signals. */
void pstd_signals_close(struct pstd_daemon *d);

#endif
