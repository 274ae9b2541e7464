// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_WATCH_H
#define PENSTOCK_DAEMON_WATCH_H
/*
 * Watches the exec thread of this process from the loop (stages/base/alive.h):
 * it may be stuck in a kernel, in a file system that does not answer or in a
 * call of MPI, where it can neither ask the other ranks nor answer them
 * (stages/run/pulse.h). Over the limit the job ends with the verdict in log
 * and standard error. It also sees that the whole process did not run for a
 * while. Loop thread.
 */
#include "stages/base/alive.h"

#include <uv.h>

struct pstd_daemon;

struct pstd_watch {
    uv_timer_t timer;
    struct pst_awake awake;
    uint64_t seen; /* signs of life */
    double since;  /* when that was, on the clock of time awake */
    bool decided;
};

void pstd_watch_start(struct pstd_daemon *d);
void pstd_watch_close(struct pstd_daemon *d);

#endif
