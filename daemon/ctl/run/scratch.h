// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
#define PENSTOCK_DAEMON_CTL_RUN_SCRATCH_H
/*
 * Temporary folder of a job: BASE/penstock-XXXXXX, owned by this user and
 * closed to others, with a file `owner` that the job's processes have locked.
 * When those processes have ended, the lock is free, and the next job that
 * starts removes the folder. Others may write in BASE, so the folder is
 * identified by its inode and owner, not by its name. One thread.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

struct pstctl_scratch {
    struct pst_str path;
    int fd;  /* the lock file, inherited by children; -1: no folder */
    int dir; /* descriptor of the folder */
};

#define PSTCTL_SCRATCH_NONE                                                    \
    {                                                                          \
        .fd = -1, .dir = -1                                                    \
    }

/* Returns the folder for temporary files: TMPDIR, else /tmp. */
const char *pstctl_scratch_base(void);
/* Creates a folder under a new name if there is none, or if the folder or its
 * lock file was removed. *ret_new: a folder was created. After a failure there
 * is no folder. */
enum pst_status pstctl_scratch_ensure(const char *base,
                                      struct pstctl_scratch *s, bool *ret_new,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if the folder and its lock file still exist under their names. */
bool pstctl_scratch_exists(const struct pstctl_scratch *s);
/* Creates an empty folder `name` in the temporary one, replacing an existing
 * one, and appends its path to ret. */
enum pst_status pstctl_scratch_folder(const struct pstctl_scratch *s,
                                      const char *name, struct pst_str *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Removes the folder with its content. */
enum pst_status pstctl_scratch_remove(struct pstctl_scratch *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Stops using the folder without removing it, because other processes still
 * hold its lock. */
void pstctl_scratch_abandon(struct pstctl_scratch *s);
/* Removes folders of this user and host that no process holds. */
void pstctl_scratch_sweep(const char *base);

#endif
