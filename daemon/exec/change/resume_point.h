// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_RESUME_POINT_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_RESUME_POINT_H
/*
 * Finds the checkpoint that a run resumes from before its engine is made: it
 * may contain a changed plan and changed options, which the engine depends on.
 * Exec thread of rank 0.
 */
#include "daemon/exec/session.h"
#include "stages/files/checkpoint/checkpoint.h"

/* The checkpoint that was found. It has no pointers and is sent to all ranks.
 */
struct pstd_found {
    uint64_t step, changes;
    uint32_t any;                /* it contains a changed plan */
    uint32_t fallback;           /* it is in --checkpoint-fallback */
    struct pst_data_place place; /* position in the data of the next step */
};

/* Finds the newest checkpoint in the run's two folders. course: receives its
 * lines of options. If no checkpoint can be read, returns zeros; loading
 * reports why. */
struct pstd_found pstd_find_checkpoint(const struct pstd_session *s,
                                       char course[PST_CHECKPOINT_OPTIONS]);

#endif
