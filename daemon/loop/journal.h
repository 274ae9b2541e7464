// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_JOURNAL_H
#define PENSTOCK_DAEMON_LOOP_JOURNAL_H
/*
 * Events of a job in a file, packed as they are sent: who watches late gets all
 * of them, and a daemon that is started again goes on with the numbers of the
 * one before. An event is in the file before anybody is sent it. Only who
 * starts the job again has to trust it: a file that is not as it should be, as
 * one cut short by the end of a process, is taken as far as it is right. Loop
 * thread.
 */
#include "stages/base/vec.h"

#include "stages/base/diag.h"

#include <stdint.h>

/* Bytes; then it begins anew, and older events are gone. */
#define PSTD_JOURNAL_MAX (256u << 20)

struct pstd_journal {
    int fd;               /* -1: none, or it could not be written any more */
    uint64_t first, next; /* numbers of the oldest event, and of the next one */
    uint64_t size, max;
    struct PST_VEC(uint64_t) marks; /* where each PSTD_JOURNAL_MARK-th is */
    uint64_t seen, seen_at;         /* where event `seen` is, read last */
};

#define PSTD_JOURNAL_MARK 256
#define PSTD_JOURNAL_NONE                                                      \
    {                                                                          \
        .fd = -1                                                               \
    }

/* Makes the file, or goes on with it: ret->next is the next event's number. */
enum pst_status pstd_journal_open(const char *path, uint64_t max,
                                  struct pstd_journal *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstd_journal_close(struct pstd_journal *j);
/* Event `next`. Without room on the disk there is no journal any more. */
void pstd_journal_add(struct pstd_journal *j, const void *data, size_t size);
/* Into a buffer (pst_realloc); *ret_size 0: it is not there. */
void pstd_journal_get(struct pstd_journal *j, uint64_t seq,
                      unsigned char **buffer, size_t *ret_size);

#endif
