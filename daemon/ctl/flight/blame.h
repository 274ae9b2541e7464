// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_FLIGHT_BLAME_H
#define PENSTOCK_DAEMON_CTL_FLIGHT_BLAME_H
/*
 * Who keeps the others waiting, by the flight records of all ranks: from a rank
 * that waits for a message to the one that has not sent (or taken) it, and on
 * from there, as long as that waits, too. One that waits looks for its message
 * again and again: one that has not for a second, while others have, stands
 * still, whatever it waited for before. Pure functions.
 */
#include "stages/base/str.h"
#include "stages/run/watch/flight.h"

struct pstctl_verdict {
    int rank;     /* at which all waiting ends; -1: nobody is known to wait */
    bool cycle;   /* it waits itself, in the end for itself */
    bool missing; /* there is no record of it */
    int waiter;   /* that waits for it; -1: none */
    double still; /* seconds in which it did not look, if others did; 0 */
};

/* logs: one per rank of the job; n 0 where there is none. */
struct pstctl_verdict pstctl_blame(const struct pst_flight_log *logs,
                                   unsigned ranks);
/* The newest record; NULL: none. */
const struct pst_flight_record *pstctl_newest(const struct pst_flight_log *log);
/* "1F3 of step 12": what a record is of. */
void pstctl_record_text(const struct pst_flight_record *r, struct pst_str *out);
/* A sentence. */
void pstctl_verdict_text(const struct pstctl_verdict *v,
                         const struct pst_flight_log *logs,
                         struct pst_str *out);

#endif
