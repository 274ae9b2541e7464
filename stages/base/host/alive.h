// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_ALIVE_H
#define PENSTOCK_STAGES_BASE_HOST_ALIVE_H
/*
 * What the thread that works for a job is doing, for whoever watches it: its
 * phase, its place in a step, and a count that moves as long as it does.
 *
 * One thread of a process is watched: the one that called pst_alive_watch.
 * From other threads the calls that tell something do nothing. Reading
 * (pst_alive_state, pst_alive_limit) is for any thread. A sign of life costs
 * two stores, so kernels, allocations and pieces of files give one each.
 */
#include "stages/base/macros.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* name, what it covers */
#define PST_ALIVE_LIST(X)                                                      \
    X(START, "start") /* until all ranks have met and compared themselves */   \
    X(LOAD, "load")   /* plan, data, memory, a checkpoint */                   \
    X(AGREE, "agree") /* a failure of one rank becomes that of all */          \
    X(STEP, "step")                                                            \
    X(SAVE, "save")     /* a checkpoint, a dump */                             \
    X(GATHER, "gather") /* numbers of ranks to rank 0 */                       \
    X(IDLE, "idle")     /* until the next order */                             \
    X(END, "end")       /* the transport is closed */

enum pst_alive_phase {
#define PST_ALIVE_ROW(id, name) PST_ALIVE_##id,
    PST_ALIVE_LIST(PST_ALIVE_ROW)
#undef PST_ALIVE_ROW
        PST_N_ALIVE
};

const char *pst_alive_name(unsigned phase);

/* Where a rank is in a step; all 0 and stage -1 outside of an action. */
struct pst_alive_place {
    uint64_t step; /* counts from 0 */
    int kind;      /* enum pst_action_kind */
    int stage, microbatch;
};

struct pst_alive_state {
    enum pst_alive_phase phase;
    bool meets;     /* it is in a call that ends when all ranks make it */
    uint64_t moves; /* work done */
    uint64_t looks; /* looks at what it waits for */
    struct pst_alive_place place;
};

/* What tells others that this rank goes on: called by pst_alive_goes_on and at
 * the begin of a phase, on the watched thread. */
typedef void (*pst_alive_fn)(void *ctx);

/* Signs of life of a process, written and read by the functions below alone. */
struct pst_alive {
    atomic_uint phase;
    atomic_bool meets;
    atomic_uint_fast64_t moves, looks, step, place;
    _Atomic double limit, step_limit, slept;
    pst_alive_fn hook;
    void *hook_ctx;
};

#define PST_ALIVE_NONE                                                         \
    {                                                                          \
        .place = UINT64_MAX                                                    \
    }

/* From here on all functions mean `other`, borrowed; NULL: this process again.
 * For one thread that plays many processes (tests/sim/). */
void pst_alive_play(struct pst_alive *other);

/* The calling thread is the one that is watched, from here on. */
void pst_alive_watch(void);
bool pst_alive_is_watched(void); /* the calling thread */
/* Begins a phase; returns the one before, for the way back. With
 * PENSTOCK_FAULT in the environment this is where faults happen
 * (stages/base/README.md). */
enum pst_alive_phase pst_alive_enter(enum pst_alive_phase phase);
/* Back to the phase before: no begin of it. */
void pst_alive_leave(enum pst_alive_phase before);
/* Before and after a call that blocks until all ranks have made it. */
void pst_alive_meet(bool meets);
/* A piece of work is done. */
void pst_alive_moved(void);
/* The same where a piece takes long: in loops over files and tensors. Others
 * hear of it, too (pst_alive_hook). */
void pst_alive_goes_on(void);
/* The calling thread works for the watched one: what it does counts there,
 * where the watched one looks while it waits. NULL: no longer. */
void pst_alive_help(atomic_uint_fast64_t *count);
/* It waits, and has looked. */
void pst_alive_looked(void);
void pst_alive_step(uint64_t step);
/* A rank of this process begins a step on a thread of its own, which is not
 * watched: a fault "lane[:NTH]:ACTION" happens there. Any thread. */
void pst_alive_lane(void);
/* The action that is next; stage -1: none. */
void pst_alive_action(int kind, int stage, int microbatch);
struct pst_alive_state pst_alive_state(void);

/* NULL: nothing is called. */
void pst_alive_hook(pst_alive_fn fn, void *ctx);

/* Seconds that anybody may stand still; 0: for ever. In all phases, until it is
 * said of steps alone. */
void pst_alive_set_limit(double seconds);
void pst_alive_set_step_limit(double seconds);
/* In a phase (enum pst_alive_phase); in the one that goes on. */
double pst_alive_limit_of(unsigned phase);
double pst_alive_limit(void);

/*
 * Time in which this process ran. A look that comes much later than the one
 * before says that it was stopped (a signal, a sleeping machine): that time
 * does not count. Its owner's thread only.
 */
#define PST_AWAKE_GAP 1.0 /* seconds; looks must come more often */

struct pst_awake {
    double last;  /* look, on the clock; 0: none yet */
    double now;   /* seconds awake */
    double slept; /* seconds, in the newest look */
};

void pst_awake_look(struct pst_awake *awake, double clock);

double pst_now(void); /* seconds, monotonic */

/* Stops that a thread has seen, for the others: seconds of all of them. */
void pst_alive_slept(double seconds);
double pst_alive_sleep(void);

#endif
