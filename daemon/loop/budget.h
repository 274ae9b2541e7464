// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_BUDGET_H
#define PENSTOCK_DAEMON_LOOP_BUDGET_H
/*
 * Rate limit for events that clients can cause as often as they like. Events
 * beyond PSTD_BUDGET_EVENTS in a second are counted, but neither logged nor
 * sent to watchers. Loop thread.
 */
#include "daemon/common/logfile.h"

#define PSTD_BUDGET_EVENTS 50 /* events of one kind per second */

struct pstd_budget {
    struct {
        uint64_t begin_us; /* beginning of the current second */
        uint64_t events;   /* events in that second */
    } at[PSTD_N_EVENTS];
};

/* Counts an event; returns true if it may be emitted. *ret_suppressed: if this
 * event begins a new second, the number of events suppressed in the last one,
 * to be reported; else 0. */
bool pstd_budget_allows(struct pstd_budget *budget, enum pstd_event event,
                        uint64_t now_us, uint64_t *ret_suppressed);
/* Finds a kind of events whose second has ended with suppressed events, and
 * returns it once with their number; PSTD_N_EVENTS: there is none. */
enum pstd_event pstd_budget_find_suppressed(struct pstd_budget *budget,
                                            uint64_t now_us,
                                            uint64_t *ret_suppressed);

#endif
