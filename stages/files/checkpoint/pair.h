// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_PAIR_H
/* The run that two checkpoint folders belong to, by their records. Restarts and
 * resumes decide by it from which checkpoints to go on. Rank 0 and supervisors;
 * any thread. */
#include "stages/files/checkpoint/lineage.h"

struct pst_checkpoint_pair {
    char run[33];   /* "": neither folder names one */
    bool of_second; /* the second folder names it */
    /* Another run is named in this folder, which this run could not write when
     * --adopt replaced that run. */
    bool replaced[2];
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

#endif
