// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SAVES_INTERVAL_H
#define PENSTOCK_DAEMON_EXEC_SAVES_INTERVAL_H
/*
 * Interval between saves with --checkpoint-cost: saves as often as possible
 * while all saves together take at most that share of the run's time. The cost
 * of a save is measured: the time without steps, plus the slowdown of steps
 * beside it (Mohan et al., CheckFreq, FAST 2021). The first save, whose cost is
 * not known yet, is due after the first steps. Times are in seconds; the caller
 * provides the clock. No threads.
 */
#include <stdbool.h>
#include <stdint.h>

/* State of the measurement. */
struct pstd_interval {
    double share;   /* share of the time that saves may take; 0: never due */
    double step_s;  /* duration of steps without a concurrent save, smoothed */
    uint64_t steps; /* finished steps */
    double extra;   /* slowdown of steps since a save began */
    double spent, last; /* cost of all saves, and of the newest one */
    /* times: start of the run, start of the save in progress, end of the pause
     * after the last save */
    double start, begun, pause_end;
    /* A save is due whatever its cost, as soon as the pause is over. */
    bool forced;
};

void pstd_interval_init(struct pstd_interval *v, double share, double now);
/* Adds a finished step; beside: a save was in progress. */
void pstd_interval_step(struct pstd_interval *v, double seconds, bool beside);
void pstd_interval_begin(struct pstd_interval *v, double now);
/* Ends a save, successful or not; returns its cost. */
double pstd_interval_end(struct pstd_interval *v, double stall_s, double now);
/* Makes a save due as soon as the pause after the last one is over, whatever
 * its cost. */
void pstd_interval_request(struct pstd_interval *v);
/* True if a save should begin now; no save may be in progress. */
bool pstd_interval_is_due(const struct pstd_interval *v, double now);

#endif
