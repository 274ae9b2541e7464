// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
/* The run that two checkpoint folders belong to, by their records. Restarts and
 * resumes decide by it from which checkpoints to go on. Rank 0 and supervisors;
 * any thread. */
#include "stages/base/str.h"
#include "stages/files/checkpoint/lineage.h"

struct pst_checkpoint_pair {
    char run[33];   /* "": neither folder names one */
    bool of_second; /* the second folder names it */
    /* Another run is named in this folder, which this run could not write when
     * --adopt replaced that run. */
    bool replaced[2];
    /* The folder is not the one that the run had at this path when it saved
     * last, which may have checkpoints: its disk may not be mounted. */
    bool gone[2];
    struct pst_checkpoint_lineage lineage; /* newest: UINT64_MAX */
    /* Earliest step to which the run has gone back while it could not write
     * the first folder; 0: none. */
    uint64_t missed;
};

/* Reads the records of both folders; either may be NULL or missing. The run is
 * that of the first folder, unless the second one has replaced it; if the first
 * one names none, that of the second. A second folder whose record cannot be
 * read is ignored if the first one names a run. */
enum pst_status pst_checkpoint_read_pair(const char *first, const char *second,
                                         struct pst_checkpoint_pair *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* The second folder of a run. */
struct pst_checkpoint_second {
    char *dir; /* NULL: the run has no second folder; free with pst_free */
    /* Step of its newest good checkpoint in the past of the run; 0: none. */
    uint64_t step;
    bool gone;   /* there is no such folder, or this process may not see it */
    bool unread; /* it cannot be read */
    /* Courses that the run has left, by the records of both folders. */
    struct pst_checkpoint_rewinds rewinds;
};

/* Reads the second folder of the run in `dir`, which the record in `dir` names;
 * for programs that read or write `dir` alone. */
enum pst_status pst_checkpoint_read_second(
    const char *dir, struct pst_checkpoint_second *ret,
    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_checkpoint_info;
/* True if the second folder has or may have a later save than the checkpoint
 * `info` of `dir`, or if the run has left the course of that checkpoint: *ret
 * is a text that says so. gone: also if the second folder is gone. */
bool pst_checkpoint_describe_second(const char *dir,
                                    const struct pst_checkpoint_info *info,
                                    bool gone, struct pst_str *ret);

#endif
