// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_JOURNAL_H
#define PENSTOCK_DAEMON_COMMON_JOURNAL_H
/*
 * Event log of a job in a file, as packed frames: a late client receives all
 * events, and a restarted daemon continues their numbers. An event is written
 * before it is sent to any client. If the file is damaged, for instance
 * truncated because a process died, the events before the damage are used. Loop
 * thread.
 */
#include "stages/base/vec.h"

#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* Maximum bytes of a file. A full file is renamed to PATH.before, and a new one
 * begins, so that about this many bytes of the newest events are kept. */
#define PSTD_JOURNAL_MAX (256u << 20)

/* Events of one file, in order. */
struct pstd_journal_part {
    int fd; /* descriptor of the file; -1: none, or writing has failed */
    uint64_t first, next; /* numbers of the oldest event, and of the next one */
    uint64_t size;
    /* Offset of each PSTD_JOURNAL_MARK-th event. */
    struct PST_VEC(uint64_t) marks;
    uint64_t seen, seen_at; /* number and offset of the event read last */
};

struct pstd_journal {
    char *path;
    uint64_t max;
    /* PATH.before (its fd is -1 if there is no such file), and PATH. */
    struct pstd_journal_part before, now;
};

#define PSTD_JOURNAL_MARK 256
#define PSTD_JOURNAL_NONE                                                      \
    {                                                                          \
        .before = {.fd = -1}, .now = {.fd = -1 }                               \
    }

/* Creates the file, or continues it. */
enum pst_status pstd_journal_open(const char *path, uint64_t max,
                                  struct pstd_journal *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstd_journal_close(struct pstd_journal *j);
/* True if events can be added. */
bool pstd_journal_is_writable(const struct pstd_journal *j);
/* Return the number of the oldest event, and of the next one. */
uint64_t pstd_journal_first(const struct pstd_journal *j);
uint64_t pstd_journal_next(const struct pstd_journal *j);
/* Adds the next event, one packed frame. After a write error no more events are
 * added. */
void pstd_journal_add(struct pstd_journal *j, const void *data, size_t size);
/* Reads an event into *buffer, which it enlarges (pst_realloc). *ret_size 0:
 * there is no such event, or another process has damaged the file. */
void pstd_journal_get(struct pstd_journal *j, uint64_t seq,
                      unsigned char **buffer, size_t *ret_size);

#endif
