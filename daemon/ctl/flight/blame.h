// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_FLIGHT_BLAME_H
#define PENSTOCK_DAEMON_CTL_FLIGHT_BLAME_H
/*
 * Finds the rank that keeps the others waiting, from the flight records of all
 * ranks. Follows each wait from the waiting rank to the rank that has not sent
 * (or received) the message, and ends at a rank that does not wait itself. A
 * waiting rank polls for its message: if it has not polled for a second while
 * others have, it hangs, whatever it waits for. Pure functions.
 */
#include "stages/base/str.h"
#include "stages/run/watch/flight.h"

struct pstctl_blamed {
    int rank;      /* rank at the end of the waits; -1: no wait is known */
    bool cycle;    /* the waits form a cycle */
    bool missing;  /* `rank` has no record */
    int waiter;    /* a rank that waits for `rank`; -1: none */
    double idle_s; /* seconds without a poll while others polled; 0: it polls */
};

/* Follows the waits. logs: one log per rank of the job; a rank without records
 * has a log with n = 0. */
struct pstctl_blamed pstctl_find_blamed(const struct pst_flight_log *logs,
                                        unsigned ranks);
/* Returns the newest record of a log; NULL: the log is empty. */
const struct pst_flight_record *pstctl_newest_record(
    const struct pst_flight_log *log);
/* Appends the action of a record: "1F3 of step 12". */
void pstctl_print_record(const struct pst_flight_record *r,
                         struct pst_str *out);
/* Appends a sentence that names the blamed rank and its action. */
void pstctl_print_blamed(const struct pstctl_blamed *v,
                         const struct pst_flight_log *logs,
                         struct pst_str *out);

#endif
