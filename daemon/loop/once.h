// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_ONCE_H
#define PENSTOCK_DAEMON_LOOP_ONCE_H
/*
 * A job for one run (--one-run): it needs no client, neither to begin nor to
 * end; and the run that a job that stays was making when it died (stay.h).
 * Nothing happens here in other jobs, but that what ranks of `penstock run`
 * print is kept short. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* All is loaded. */
void pstd_once_ready(struct pstd_daemon *d);
/* The run has ended. */
void pstd_once_end(struct pstd_daemon *d);
/* From time to time: of what the ranks and their launcher print, into a file
 * beside the socket, the newest part is kept. */
void pstd_once_trim(const struct pstd_daemon *d);
/* The exec thread has. */
void pstd_once_record(struct pstd_daemon *d);

#endif
