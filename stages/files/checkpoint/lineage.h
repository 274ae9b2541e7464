// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_LINEAGE_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_LINEAGE_H
/*
 * Tells which checkpoints in the two folders of a run are in its past. A run
 * that goes back with --resume=STEP begins a new course: checkpoints of later
 * steps that were saved before are not in its past any more. They are moved
 * away, but from a folder that cannot be written only when the run can write it
 * again. Until then owner.json of the other folder records which of them do not
 * count. Rank 0 only; any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "stages/base/diag.h"

/* Maximum number of rewinds that are remembered, the newest ones. */
#define PST_CHECKPOINT_REWINDS 32

/* The run went back to `step`, and the course with that number began. */
struct pst_checkpoint_rewind {
    uint64_t course, step;
};

/* Courses and steps both increase: a rewind to the same or an earlier step
 * replaces those before it. */
struct pst_checkpoint_rewinds {
    unsigned n;
    struct pst_checkpoint_rewind at[PST_CHECKPOINT_REWINDS];
};

/* Checkpoints in the past of a run. */
struct pst_checkpoint_lineage {
    bool ignored[2]; /* the first and the second folder are another run's */
    uint64_t newest; /* last step in the past of the run */
    struct pst_checkpoint_rewinds rewinds;
};

void pst_checkpoint_add_rewind(struct pst_checkpoint_rewinds *rewinds,
                               uint64_t course, uint64_t step);
/* Returns the number of the course since the last rewind; 0: there is none. */
uint64_t pst_checkpoint_course(const struct pst_checkpoint_rewinds *rewinds);
/* Returns a number for a new course, larger than `before`. It is the time in
 * milliseconds, so that courses differ although their folders were not
 * available at the same time. */
uint64_t pst_checkpoint_new_course(uint64_t before);
/* True if a checkpoint of this course and step is not in the past of the run
 * any more: in a later course the run went back to an earlier step. */
bool pst_checkpoint_is_left(const struct pst_checkpoint_rewinds *rewinds,
                            uint64_t course, uint64_t step);

#endif
