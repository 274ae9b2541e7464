// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_WATCH_H
#define PENSTOCK_DAEMON_LOOP_WATCH_H
/*
 * Watches the exec thread of this process from the loop
 * (stages/base/host/alive.h): it may be stuck in a kernel, in a file system
 * that does not answer or in a call of MPI, where it can neither ask the other
 * ranks nor answer them (stages/run/watch/pulse.h). Over the limit the job ends
 * with the diagnosis in log and standard error. It also sees that the whole
 * process did not run for a while. Loop thread.
 */
#include "stages/base/diag.h"
#include "stages/base/host/alive.h"

#include <stdatomic.h>
#include <uv.h>

/* What is done with a diagnosis, and a moment later, when it is told: end. */
struct pstd_watch_hooks {
    void (*diagnosis)(void *ctx, const struct pst_diag *diag);
    void (*end)(void *ctx);
    void *ctx;
};

struct pstd_watch {
    struct pstd_watch_hooks hooks;
    bool has_rank; /* it is known: set it then */
    unsigned rank;
    uv_timer_t timer;
    struct pst_awake awake;
    _Atomic double looked; /* newest tick, on the clock; any thread reads it */
    uint64_t seen;         /* signs of life */
    double since;          /* when that was, on the clock of time awake */
    bool decided;
};

#define PSTD_WATCH_MS 200 /* between looks */

/* One look, at a time of pst_now; all zero but has_rank and rank at first.
 * True: the exec thread stands still for longer than it may; *diag says where.
 */
bool pstd_watch_look(struct pstd_watch *w, double clock, struct pst_diag *diag);

void pstd_watch_start(struct pstd_watch *w, uv_loop_t *loop,
                      struct pstd_watch_hooks hooks);
void pstd_watch_close(struct pstd_watch *w);

#endif
