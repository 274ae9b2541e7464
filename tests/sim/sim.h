// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SIM_SIM_H
#define PENSTOCK_TESTS_SIM_SIM_H
/*
 * Deterministic simulation: code of penstock as it is, in a world that is
 * played. Chance comes from one seed, time from a queue of events; the clocks
 * of the C library and all that leaves the process are caught by the linker
 * (--wrap, meson.build) while a world plays. So a seed gives the same course
 * each time, in each process. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "stages/base/macros.h"

#define SIM_MS 1000000ull /* virtual time is in nanoseconds */
#define SIM_S  1000000000ull

struct sim_world {
    const char *name;
    unsigned share; /* of 100 seeds that are drawn */
    void (*play)(void);
};

extern const struct sim_world sim_job_world, sim_watch_world, sim_control_world;

/* --- chance --------------------------------------------------------------- */

/* 0 ... n - 1. */
uint64_t sim_pick(uint64_t n);
/* a ... b, both of them too. */
uint64_t sim_between(uint64_t a, uint64_t b);
/* True once in n times. */
bool sim_once_in(unsigned n);

/* --- time ----------------------------------------------------------------- */

/* Time since the begin of the world, as the monotonic clock has it. */
uint64_t sim_now(void);
/* Somebody sets the clock of the host. */
void sim_set_wall(int64_t seconds_ahead);

typedef void (*sim_fn)(void *ctx, uint64_t what);
/* At a time that is not past; of the same time in the order of the calls. */
void sim_at(uint64_t when, sim_fn fn, void *ctx, uint64_t what);
/* Goes on to the next event. False: there is none. */
bool sim_next(void);
/* The world's events, without the time that they take: a call waits. */
void sim_sleep(uint64_t ns);
/* Forgets all events. */
void sim_forget(void);

/* --- this process --------------------------------------------------------- */

/* The first call goes to an empty folder, which is removed at the end. */
void sim_use_folder(void);
/* What getpid gives. */
extern int sim_pid;

/* --- what happens --------------------------------------------------------- */

/* Part of the course of this seed: printed with --trace, and in its hash. */
void sim_tell(const char *format, ...) PST_PRINTF(1, 2);
/* The seed has failed: prints why, and how to play it again; does not return.
 */
_Noreturn void sim_fail(const char *format, ...) PST_PRINTF(1, 2);
#define sim_check(condition, ...)                                              \
    do {                                                                       \
        if (!(condition))                                                      \
            sim_fail(__VA_ARGS__);                                             \
    } while (0)

#endif
