// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_BUDGET_H
#define PENSTOCK_DAEMON_LOOP_BUDGET_H
/*
 * How many events of a kind a second may have, of those that clients can cause
 * as often as they like: what is more is left out, of the log and of what
 * watchers get, and counted. Loop thread.
 */
#include "daemon/common/logfile.h"

#define PSTD_BUDGET_EVENTS 50 /* of a kind in a second */

struct pstd_budget {
    struct {
        uint64_t begin_us; /* of the second */
        uint64_t events;   /* in it */
    } at[PSTD_N_EVENTS];
};

/* Whether the event is within its budget; counts it. *ret_suppressed: how many
 * were not in the second that is over with this event, and are to be told. */
bool pstd_budget_takes(struct pstd_budget *budget, enum pstd_event event,
                       uint64_t now_us, uint64_t *ret_suppressed);
/* The first kind whose second is over with events left out, and how many;
 * PSTD_N_EVENTS: there is none. It counts as told. */
enum pstd_event pstd_budget_over(struct pstd_budget *budget, uint64_t now_us,
                                 uint64_t *ret_suppressed);

#endif
