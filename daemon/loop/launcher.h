// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_LAUNCHER_H
#define PENSTOCK_DAEMON_LOOP_LAUNCHER_H
/*
 * The launcher of a job of `penstock run` has the signals blocked that would
 * let it kill its ranks, whatever they save. Who sends it one means the job:
 * its children see in /proc that it waits there.
 */
#include "daemon/loop/daemon.h"

#include <stdbool.h>

/* True if SIGTERM or SIGINT waits for the parent of this process. SIGHUP means
 * nothing to a job. */
bool pstd_launcher_is_asked(void);
/* Prints that somebody asked this rank to end, for who started the launcher:
 * the job is not started again, even if it dies before the step has ended, and
 * whichever rank it is that was asked. */
void pstd_launcher_pass_on(const struct pstd_daemon *d);

#endif
