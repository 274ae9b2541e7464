// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_JOURNAL_H
#define PENSTOCK_DAEMON_COMMON_JOURNAL_H
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

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a file; then it becomes PATH.before, and a new one begins: at least
 * so many bytes of the newest events are kept. */
#define PSTD_JOURNAL_MAX (256u << 20)

/* Events of one file, in order. */
struct pstd_journal_part {
    int fd;               /* -1: none, or it could not be written any more */
    uint64_t first, next; /* numbers of the oldest event, and of the next one */
    uint64_t size;
    struct PST_VEC(uint64_t) marks; /* where each PSTD_JOURNAL_MARK-th is */
    uint64_t seen, seen_at;         /* where event `seen` is, read last */
};

struct pstd_journal {
    char *path;
    uint64_t max;
    struct pstd_journal_part before,
        now; /* fd of before -1: nothing is there */
};

#define PSTD_JOURNAL_MARK 256
#define PSTD_JOURNAL_NONE                                                      \
    {                                                                          \
        .before = {.fd = -1}, .now = {.fd = -1 }                               \
    }

/* Makes the file, or goes on with it. */
enum pst_status pstd_journal_open(const char *path, uint64_t max,
                                  struct pstd_journal *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstd_journal_close(struct pstd_journal *j);
/* Can events be added? */
bool pstd_journal_works(const struct pstd_journal *j);
/* Numbers of the oldest event, and of the next one. */
uint64_t pstd_journal_first(const struct pstd_journal *j);
uint64_t pstd_journal_next(const struct pstd_journal *j);
/* Event `next`. Without room on the disk there is no journal any more. */
void pstd_journal_add(struct pstd_journal *j, const void *data, size_t size);
/* Into a buffer (pst_realloc); *ret_size 0: it is not there, or another process
 * has damaged the file. */
void pstd_journal_get(struct pstd_journal *j, uint64_t seq,
                      unsigned char **buffer, size_t *ret_size);

#endif
