// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
/* The run that two checkpoint folders belong to, by their records. Restarts and
 * resumes decide by it from which checkpoints to go on. Rank 0 and supervisors;
 * any thread. */
#include "stages/base/str.h"
#include "stages/files/checkpoint/lineage.h"

struct pst_checkpoint_pair {
    char run[33];   /* "": neither folder names a run */
    bool of_second; /* `run` is the one that the second folder names */
    /* Per folder: it still names the run that this run has replaced (--adopt),
     * since this run could not write the folder then. */
    bool replaced[2];
    /* Per folder: it is not the folder that the run had at this path at its
     * last save. That one may have checkpoints: its disk may not be mounted. */
    bool gone[2];
    struct pst_checkpoint_lineage lineage; /* newest: UINT64_MAX */
    /* Earliest step to which the run has gone back at a time when it could not
     * write the first folder; 0: none. */
    uint64_t missed;
};

/* Reads the records of both folders; either may be NULL or missing. The run is
 * the one that the first folder names, or the second if the first names none or
 * its run was replaced. If the record of the second folder cannot be read,
 * ignores that folder, provided that the first names a run. */
enum pst_status pst_checkpoint_read_pair(const char *first, const char *second,
                                         struct pst_checkpoint_pair *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* The second folder of a run. */
struct pst_checkpoint_second {
    char *dir; /* NULL: the run has no second folder; free with pst_free */
    /* Step of its newest good checkpoint in the past of the run; 0: none. */
    uint64_t step;
    bool gone;   /* there is no such folder, or this process cannot see it */
    bool unread; /* the folder cannot be read */
    /* Courses that the run has left, by the records of both folders. */
    struct pst_checkpoint_rewinds rewinds;
};

/* Reads the second folder of the run in `dir`, which the record in `dir` names;
 * for programs that read or write `dir` alone. */
enum pst_status pst_checkpoint_read_second(
    const char *dir, struct pst_checkpoint_second *ret,
    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_checkpoint_info;
/* Appends to *ret a sentence on the checkpoint `info` of `dir`, and returns
 * true, if the run has left the course of that checkpoint, or if the second
 * folder has or may have a later save. gone: a missing second folder may have
 * one. */
bool pst_checkpoint_describe_second(const char *dir,
                                    const struct pst_checkpoint_info *info,
                                    bool gone, struct pst_str *ret);

#endif
