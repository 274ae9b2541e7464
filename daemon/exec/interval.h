// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_INTERVAL_H
#define PENSTOCK_DAEMON_EXEC_INTERVAL_H
/*
 * How often a run saves with --checkpoint-cost: as often as all saves together
 * take no more than that share of its time. What one takes is measured: the
 * time without steps, and how much longer steps last beside it than they do
 * without (Mohan et al., CheckFreq, FAST 2021). Until one was measured, one is
 * made. Seconds; clocks are the caller's. No threads.
 */
#include <stdbool.h>
#include <stdint.h>

struct pstd_interval {
    double share;  /* 0: never due */
    double step_s; /* of steps without a save beside them, smoothed */
    uint64_t steps;
    double extra;       /* what steps have lasted longer since a save began */
    double spent, last; /* by all saves, by the newest one */
    double start, begun, rest;
    bool wanted; /* whatever the share says: at the next time that is due */
};

void pstd_interval_init(struct pstd_interval *v, double share, double now);
/* A step has ended; beside: a save is open. */
void pstd_interval_step(struct pstd_interval *v, double seconds, bool beside);
void pstd_interval_begin(struct pstd_interval *v, double now);
/* The save has ended, well or not. Returns what it has cost. */
double pstd_interval_end(struct pstd_interval *v, double stall_s, double now);
/* What a save would keep has come to be: one is due as soon as the newest one
 * has rested. */
void pstd_interval_want(struct pstd_interval *v);
/* No save is open: shall one begin? */
bool pstd_interval_is_due(const struct pstd_interval *v, double now);

#endif
