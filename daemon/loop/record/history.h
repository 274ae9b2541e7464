// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_HISTORY_H
#define PENSTOCK_DAEMON_LOOP_RECORD_HISTORY_H
/* Events, packed as they are sent to clients: the newest in memory, all of them
 * in a journal if there is one. Loop thread. */
#include "daemon/common/logfile.h"
#include "daemon/common/journal.h"

#define PSTD_EVENTS 1024 /* newest ones that watch and log can show */

/* A packed Frame with its length in front. */
struct pstd_packed {
    unsigned char *data;
    size_t size;
};

/* All zero at first. */
struct pstd_history {
    struct pstd_packed events[PSTD_EVENTS]; /* seq % PSTD_EVENTS */
    uint64_t seq;                           /* of the newest event, from 1 */
    struct pstd_journal *journal;           /* NULL: none */
    struct pstd_packed old;                 /* from there, read last */
};

/* Before the first event. Borrows the journal, whose numbers go on. */
void pstd_history_use(struct pstd_history *history,
                      struct pstd_journal *journal);

/* Adds the next event. False: no memory, and who watches sees a gap. */
bool pstd_history_add(struct pstd_history *history,
                      const struct pstd_note *note, uint64_t time_us);
/* Number of the oldest event that may still be there. */
uint64_t pstd_history_oldest(const struct pstd_history *history);
/* The event, until the next call, or NULL if it is too old or not there yet. */
const struct pstd_packed *pstd_history_get(struct pstd_history *history,
                                           uint64_t seq);
void pstd_history_fini(struct pstd_history *history);

#endif
