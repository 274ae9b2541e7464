// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_WATCH_H
#define PENSTOCK_DAEMON_LOOP_WATCH_H
/*
 * Watchdog on the loop thread for the exec thread of this process
 * (stages/base/host/alive.h). The exec thread may hang in a kernel, in a file
 * system, or in an MPI call. There it can neither query other ranks nor answer
 * them (stages/run/watch/pulse.h). Beyond the limit the job ends, with a
 * diagnosis in the log and on standard error. Also detects that the whole
 * process was stopped for a while. Loop thread.
 */
#include "stages/base/diag.h"
#include "stages/base/host/alive.h"

#include <stdatomic.h>
#include <uv.h>

/* Callbacks if the exec thread hangs: `diagnosis` at once; `end` a moment
 * later, when the diagnosis has reached log and clients, just before the
 * process ends. */
struct pstd_watch_hooks {
    void (*diagnosis)(void *ctx, const struct pst_diag *diag);
    void (*end)(void *ctx);
    void *ctx;
};

struct pstd_watch {
    struct pstd_watch_hooks hooks;
    bool has_rank; /* `rank` is set */
    unsigned rank;
    uv_timer_t timer;
    struct pst_awake awake;
    _Atomic double
        last_tick; /* time of the newest tick; any thread may read it */
    uint64_t seen; /* number of signs of life until that tick */
    /* Time of the last sign of life, on the clock `awake`, which does not run
     * while the process is stopped. */
    double since;
};

#define PSTD_WATCH_MS 200 /* interval of pstd_watch_check */

/* Checks the exec thread; clock: pst_now(). Before the first call all members
 * are zero except has_rank and rank. True: the thread has made no progress for
 * longer than allowed; *diag says where it hangs. */
bool pstd_watch_check(struct pstd_watch *w, double clock,
                      struct pst_diag *diag);

void pstd_watch_start(struct pstd_watch *w, uv_loop_t *loop,
                      struct pstd_watch_hooks hooks);
void pstd_watch_close(struct pstd_watch *w);

#endif
