// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SIM_SIM_H
#define PENSTOCK_TESTS_SIM_SIM_H
/*
 * Deterministic simulation: unmodified code of penstock runs in a simulated
 * world. Random numbers come from one seed, time from a queue of events. The
 * linker intercepts clocks of the C library and everything that leaves the
 * process (--wrap, meson.build) while a simulation runs. A seed therefore gives
 * the same run each time, in each process. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "stages/base/macros.h"

#define SIM_MS 1000000ull /* virtual time is in nanoseconds */
#define SIM_S  1000000000ull

struct sim_world {
    const char *name;
    unsigned share; /* out of 100 random seeds */
    void (*play)(void);
};

extern const struct sim_world sim_job_world, sim_watch_world, sim_control_world;

/* --- chance --------------------------------------------------------------- */

/* Returns a random number of 0 ... n - 1. */
uint64_t sim_pick(uint64_t n);
/* Returns a random number of a ... b, both included. */
uint64_t sim_between(uint64_t a, uint64_t b);
/* Returns true once in n times, at random. */
bool sim_once_in(unsigned n);

/* --- time ----------------------------------------------------------------- */

/* Returns the time on the monotonic clock. */
uint64_t sim_now(void);
/* Sets the wall clock of the host. */
void sim_set_wall(int64_t seconds_ahead);

typedef void (*sim_fn)(void *ctx, uint64_t what);
/* Calls fn at a time that is not past; events of the same time run in the order
 * of the calls. */
void sim_at(uint64_t when, sim_fn fn, void *ctx, uint64_t what);
/* Runs the next event. False: there is none. */
bool sim_next(void);
/* Lets virtual time pass and runs the events of that time: for a call that
 * blocks. */
void sim_sleep(uint64_t ns);
/* Forgets all events. */
void sim_clear_events(void);

/* --- this process --------------------------------------------------------- */

/* Enters an empty folder, which the first call makes and the end of the process
 * removes. */
void sim_use_folder(void);
/* Result of getpid(). */
extern int sim_pid;

/* --- what happens --------------------------------------------------------- */

/* Adds a line to the trace of this seed: printed with --trace, and part of its
 * hash. */
void sim_trace(const char *format, ...) PST_PRINTF(1, 2);
/* Reports a failure of the seed and how to repeat it; does not return. */
_Noreturn void sim_fail(const char *format, ...) PST_PRINTF(1, 2);
#define sim_check(condition, ...)                                              \
    do {                                                                       \
        if (!(condition))                                                      \
            sim_fail(__VA_ARGS__);                                             \
    } while (0)

#endif
