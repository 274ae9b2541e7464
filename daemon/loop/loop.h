// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_LOOP_H
#define PENSTOCK_DAEMON_LOOP_LOOP_H
/*
 * The loop thread: signals, timers, the log, the control socket. It never calls
 * MPI and never blocks.
 */
#include "daemon/common/config.h"

/* Runs until the job is over; returns the program's exit code. */
int pstd_daemon_run(const struct pstd_config *config, const char *plan);

#endif
