// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_HISTORY_H
#define PENSTOCK_DAEMON_LOOP_RECORD_HISTORY_H
/* Events, packed as sent to clients: the newest in memory, all of them in a
 * journal if there is one. Loop thread. */
#include "daemon/common/journal.h"
#include "daemon/common/logfile.h"

/* newest events in memory, for requests of watch and log */
#define PSTD_EVENTS 1024

/* A packed Frame with its length in front. */
struct pstd_packed {
    unsigned char *data;
    size_t size;
};

/* A zeroed struct has no events. */
struct pstd_history {
    struct pstd_packed events[PSTD_EVENTS]; /* by number % PSTD_EVENTS */
    uint64_t seq;                           /* newest event's number, from 1 */
    struct pstd_journal *journal;           /* NULL: none */
    /* packed event that was last read from the journal */
    struct pstd_packed old;
};

/* Call before the first event. Borrows the journal and continues its
 * numbers. */
void pstd_history_set_journal(struct pstd_history *history,
                              struct pstd_journal *journal);

/* Adds the next event. False: no memory; watchers get a gap in its place. */
bool pstd_history_add(struct pstd_history *history,
                      const struct pstd_note *note, uint64_t time_us);
/* Returns the number of the oldest event that may still be available. */
uint64_t pstd_history_oldest(const struct pstd_history *history);
/* Returns the event, valid until the next call; NULL if it is too old or does
 * not exist yet. */
const struct pstd_packed *pstd_history_get(struct pstd_history *history,
                                           uint64_t seq);
void pstd_history_fini(struct pstd_history *history);

#endif
