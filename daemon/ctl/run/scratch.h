// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
#define PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
/*
 * A folder that goes with a job: BASE/penstock-XXXXXX, ours and closed to
 * others, with a file `owner` that the job's processes have locked. Whatever
 * kills them, the next job that is started removes the folders whose locks are
 * free, and nothing else. One thread.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

struct pstctl_scratch {
    struct pst_str path;
    int fd; /* of the lock, for whoever else shall hold it; -1: no folder */
};

#define PSTCTL_SCRATCH_NONE                                                    \
    {                                                                          \
        .fd = -1                                                               \
    }

enum pst_status pstctl_scratch_make(const char *base,
                                    struct pstctl_scratch *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* With all that is in it. */
enum pst_status pstctl_scratch_remove(struct pstctl_scratch *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Leaves it to the other processes that hold the lock. */
void pstctl_scratch_leave(struct pstctl_scratch *s);
/* Removes those of this user that no process holds. */
void pstctl_scratch_sweep(const char *base);

#endif
