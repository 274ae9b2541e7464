// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/budget.h"

#include "stages/base/macros.h"

#define SECOND 1000000u /* one second, in microseconds */

/* Kinds of events that are limited here. Events of dropped clients are limited
 * by control.c. */
static const enum pstd_event limited[] = {PSTD_EVENT_REQUEST};

static bool is_limited(enum pstd_event event)
{
    for (size_t i = 0; i < PST_COUNT(limited); i++)
        if (limited[i] == event)
            return true;
    return false;
}

/* Begins a new second for a kind of events if the current one is over, or if
 * the clock was set back. Returns the number of events suppressed in the second
 * that has ended. */
static uint64_t begin_second(struct pstd_budget *budget, enum pstd_event event,
                             uint64_t now_us)
{
    const uint64_t begin = budget->at[event].begin_us;
    const uint64_t events = budget->at[event].events;

    if (now_us >= begin && now_us - begin < SECOND)
        return 0;
    budget->at[event].begin_us = now_us;
    budget->at[event].events = 0;
    return events > PSTD_BUDGET_EVENTS ? events - PSTD_BUDGET_EVENTS : 0;
}

bool pstd_budget_allows(struct pstd_budget *budget, enum pstd_event event,
                        uint64_t now_us, uint64_t *ret_suppressed)
{
    *ret_suppressed = 0;
    if (!is_limited(event))
        return true;
    *ret_suppressed = begin_second(budget, event, now_us);
    return ++budget->at[event].events <= PSTD_BUDGET_EVENTS;
}

enum pstd_event pstd_budget_find_suppressed(struct pstd_budget *budget,
                                            uint64_t now_us,
                                            uint64_t *ret_suppressed)
{
    for (size_t i = 0; i < PST_COUNT(limited); i++) {
        *ret_suppressed = begin_second(budget, limited[i], now_us);
        if (*ret_suppressed > 0)
            return limited[i];
    }
    return PSTD_N_EVENTS;
}
