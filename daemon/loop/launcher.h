// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_LAUNCHER_H
#define PENSTOCK_DAEMON_LOOP_LAUNCHER_H
/*
 * The launcher of a job of `penstock run` blocks the signals at which it would
 * otherwise kill its ranks, even during a save. Such a signal is meant for the
 * job, so the ranks look in /proc whether one is pending for the launcher.
 */
#include "daemon/loop/daemon.h"

#include <stdbool.h>

/* True if SIGTERM or SIGINT is pending for the parent of this process. SIGHUP
 * does not end a job. */
bool pstd_launcher_has_signal(void);
/* Prints that this rank was asked to end. The process that started the launcher
 * reads that, and does not restart the job, even if the job dies before the
 * step has ended. */
void pstd_launcher_print_request(const struct pstd_daemon *d);

#endif
