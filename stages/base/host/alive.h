// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_ALIVE_H
#define PENSTOCK_STAGES_BASE_HOST_ALIVE_H
/*
 * Progress of the thread that works for a job, for its watchdog: its phase, its
 * position in a step, and a count that grows as long as work is done.
 *
 * One thread of a process is watched: the one that called pst_alive_watch. On
 * other threads the reporting calls do nothing. Reading (pst_alive_state,
 * pst_alive_limit) is allowed on any thread. A report costs two stores, so each
 * kernel, allocation and piece of a file makes one.
 */
#include "stages/base/macros.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Identifier and text of each phase; the comments say what the phase
 * covers. */
#define PST_ALIVE_LIST(X)                                                      \
    X(START, "start") /* ranks connect and compare their versions */           \
    X(LOAD, "load")   /* reads plan, data, checkpoint; allocates */            \
    X(AGREE, "agree") /* propagates a failure of one rank to all */            \
    X(STEP, "step")                                                            \
    X(SAVE, "save")     /* writes a checkpoint or a dump */                    \
    X(GATHER, "gather") /* rank 0 collects numbers of all ranks */             \
    X(IDLE, "idle")     /* waits for the next command */                       \
    X(END, "end")       /* closes the transport */

enum pst_alive_phase {
#define PST_ALIVE_ROW(id, name) PST_ALIVE_##id,
    PST_ALIVE_LIST(PST_ALIVE_ROW)
#undef PST_ALIVE_ROW
        PST_N_ALIVE
};

const char *pst_alive_name(unsigned phase);

/* Position of a rank in a step; all 0 and stage -1 outside of an action. */
struct pst_alive_place {
    uint64_t step; /* number of the step, from 0 */
    int kind;      /* enum pst_action_kind */
    int stage, microbatch;
};

struct pst_alive_state {
    enum pst_alive_phase phase;
    bool collective;    /* in a collective call, which waits for all ranks */
    uint64_t work_done; /* pieces of work done */
    uint64_t polls;     /* polls while waiting for another thread or rank */
    struct pst_alive_place place;
};

/* Hook that reports progress of this rank to others: called by
 * pst_alive_progress and at the beginning of a phase, on the watched thread. */
typedef void (*pst_alive_fn)(void *ctx);

/* Progress of a process; only the functions below access it. */
struct pst_alive {
    atomic_uint phase;
    atomic_bool collective;
    atomic_uint_fast64_t work_done, polls, step, place;
    _Atomic double limit, step_limit, stopped_s;
    pst_alive_fn hook;
    void *hook_ctx;
};

#define PST_ALIVE_NONE                                                         \
    {                                                                          \
        .place = UINT64_MAX                                                    \
    }

/* Makes the calling thread watched, and lets it report to `state` (borrowed)
 * instead of the state of the process, until pst_alive_leave. Returns the
 * argument of pst_alive_leave: the previous `state` of the thread; NULL: none.
 * For calls of the library in threads of the application, and for tests in
 * which one thread simulates many processes (tests/sim/). Such a thread must
 * not call pst_alive_watch. */
struct pst_alive *pst_alive_enter(struct pst_alive *state);
void pst_alive_leave(struct pst_alive *before);
/* Makes the calling thread the watched one. */
void pst_alive_watch(void);
bool pst_alive_is_watched(void); /* true on the watched thread */
/* Begins a phase; returns the previous one, for pst_alive_restore_phase. With
 * PENSTOCK_FAULT in the environment, faults are injected here
 * (stages/base/README.md). */
enum pst_alive_phase pst_alive_begin_phase(enum pst_alive_phase phase);
/* Returns to the previous phase; this does not count as the beginning of a
 * phase. */
void pst_alive_restore_phase(enum pst_alive_phase before);
/* Marks a call that blocks until all ranks have made it. Call this with true
 * before that call, and with false after it. */
void pst_alive_mark_collective(bool collective);
/* Reports a finished piece of work. */
void pst_alive_record_progress(void);
/* Reports progress like pst_alive_record_progress, in loops over files and
 * tensors where a piece takes long; also calls the hook (pst_alive_set_hook).
 */
void pst_alive_progress(void);
/* Makes the calling thread count its work in *count for the watched thread,
 * which polls *count while it waits. NULL ends this. */
void pst_alive_count_in(atomic_uint_fast64_t *count);
/* Reports that the watched thread has polled while it waits. */
void pst_alive_record_poll(void);
void pst_alive_step(uint64_t step);
/* Reports that a rank of this process begins a step on a thread of its own,
 * which is not watched; injects faults "lane[:NTH]:ACTION". Any thread. */
void pst_alive_begin_lane(void);
/* Reports the next action; stage -1: none. */
void pst_alive_action(int kind, int stage, int microbatch);
struct pst_alive_state pst_alive_state(void);

/* Sets the hook; NULL removes it. */
void pst_alive_set_hook(pst_alive_fn fn, void *ctx);

/* Set the seconds without progress that are allowed; 0: no limit. The first
 * function sets the limit of all phases; the second one then changes that of
 * steps. */
void pst_alive_set_limit(double seconds);
void pst_alive_set_step_limit(double seconds);
/* Return the limit of a phase (enum pst_alive_phase), and that of the current
 * phase, in seconds. */
double pst_alive_limit_of(unsigned phase);
double pst_alive_limit(void);

/*
 * Time in which this process ran. If pst_awake_update is called more than
 * PST_AWAKE_GAP seconds after the previous call, the process was stopped in
 * between (by a signal, or because the machine was suspended), and the time
 * between the calls does not count. Used by one thread only.
 */
/* seconds; calls of pst_awake_update must follow each other sooner */
#define PST_AWAKE_GAP 1.0

struct pst_awake {
    double last;      /* time of the last call; 0: none yet */
    double now;       /* seconds in which the process ran */
    double stopped_s; /* seconds stopped before the last call */
};

void pst_awake_update(struct pst_awake *awake, double clock);

double pst_now(void);      /* returns seconds on a monotonic clock */
uint64_t pst_now_ms(void); /* the same in whole milliseconds */

/* Adds stopped time that a thread has found; pst_alive_stopped_seconds returns
 * the sum over all threads, in seconds. */
void pst_alive_add_stopped(double seconds);
double pst_alive_stopped_seconds(void);

#endif
