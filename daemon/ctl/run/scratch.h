// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
#define PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
/*
 * A folder that goes with a job: BASE/penstock-XXXXXX, ours and closed to
 * others, with a file `owner` that the job's processes have locked. Whatever
 * kills them, the next job that is started removes the folders whose locks are
 * free, and nothing else. Others may write in BASE: the folder is the one that
 * was made, by its inode and owner, not whatever has its name. One thread.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

struct pstctl_scratch {
    struct pst_str path;
    int fd;  /* of the lock, for children to hold; -1: no folder */
    int dir; /* the folder itself */
};

#define PSTCTL_SCRATCH_NONE                                                    \
    {                                                                          \
        .fd = -1, .dir = -1                                                    \
    }

/* Makes a folder if there is none, or if it is no longer what its name means:
 * then under a new name. *ret_new: it was made. On failure there is none. */
enum pst_status pstctl_scratch_keep(const char *base, struct pstctl_scratch *s,
                                    bool *ret_new,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True if others that look for its name find this folder and its lock. */
bool pstctl_scratch_is_there(const struct pstctl_scratch *s);
/* Makes an empty folder in it, and adds its path to ret. */
enum pst_status pstctl_scratch_folder(const struct pstctl_scratch *s,
                                      const char *name, struct pst_str *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* With all that is in it. */
enum pst_status pstctl_scratch_remove(struct pstctl_scratch *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Leaves it to the other processes that hold the lock. */
void pstctl_scratch_leave(struct pstctl_scratch *s);
/* Removes those of this user and host that no process holds. */
void pstctl_scratch_sweep(const char *base);

#endif
