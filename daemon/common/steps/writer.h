// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_STEPS_WRITER_H
#define PENSTOCK_DAEMON_COMMON_STEPS_WRITER_H
/*
 * Writes the history of a run (steps.h) to one or two folders. Records wait
 * in memory, and are written once a second or on request, each file by few
 * calls. A folder that cannot be written is tried again; what does not fit into
 * memory meanwhile is missing there. One thread.
 */
#include "daemon/common/steps/steps.h"

#define PSTD_STEPS_WAITING 4096 /* maximum records that wait in memory */

struct pstd_steps_target {
    char *dir;     /* folder of the file; NULL: none */
    int fd;        /* -1: not open */
    uint64_t base; /* step before the first one of the file */
    uint64_t last; /* last step that this process wrote to the folder, or the
                      one that it began after */
    size_t done;   /* number of waiting records that are in the file */
    bool failing;  /* the last write failed */
    bool lacking;  /* records were dropped before they could be written */
    bool left_out; /* not used for now (pstd_steps_exclude) */
};

struct pstd_steps_writer {
    struct pstd_steps_target at[2];
    struct pstd_steps_record *waiting; /* NULL: nothing is written */
    size_t n;
    struct pstd_steps_head head; /* base: the steps that the run had when this
                                    process began */
    double flushed;              /* time of the newest flush */
};

/* Called when a folder cannot be written, once for failures in a row. */
typedef void (*pstd_steps_failed_fn)(void *ctx, const char *dir,
                                     const struct pst_diag *why);

/* Begins with the step after head->base. dirs: folders, NULL for none; files
 * are opened by the first flush. A file of the same run loses its records of
 * later steps, and this run's are added; another file is renamed to
 * PSTD_STEPS_FORMER. */
enum pst_status pstd_steps_begin(struct pstd_steps_writer *w,
                                 const struct pstd_steps_head *head,
                                 const char *const dirs[2],
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Call before the first flush: removes from the file in folder i the records of
 * steps after this one, which the run did not make. */
void pstd_steps_disown_after(struct pstd_steps_writer *w, unsigned i,
                             uint64_t step);
/* Adds the record of a step; never waits. now: time in seconds. True: a flush
 * is due. */
bool pstd_steps_add(struct pstd_steps_writer *w,
                    const struct pstd_steps_record *record, double now);
/* Closes each file that is no longer the one in its folder, because it was
 * removed, moved or replaced by a copy; the next flush opens the file of that
 * name. */
void pstd_steps_close_moved(struct pstd_steps_writer *w);
void pstd_steps_flush(struct pstd_steps_writer *w, double now,
                      pstd_steps_failed_fn failed, void *ctx);
/* Drops the records of steps after this one, because the run repeats these
 * steps. */
void pstd_steps_drop_after(struct pstd_steps_writer *w, uint64_t step);
/* Writes nothing to folder i while `out`. */
void pstd_steps_exclude(struct pstd_steps_writer *w, unsigned i, bool out);
/* True if a folder lacks steps because it could not be written. */
bool pstd_steps_is_lacking(const struct pstd_steps_writer *w);
/* Frees all; records that wait are lost. */
void pstd_steps_end(struct pstd_steps_writer *w);

#endif
