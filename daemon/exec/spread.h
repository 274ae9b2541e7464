// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SPREAD_H
#define PENSTOCK_DAEMON_EXEC_SPREAD_H
/* A file that rank 0 alone can be sure to see, for all ranks. Exec thread. */
#include <limits.h>

#include "daemon/exec/collective.h"

struct pstd_spread {
    char path[PATH_MAX]; /* rank 0's own, or one that only this process sees */
    int file;            /* which that names; -1: none */
};

/* COLLECTIVE. To be ended also after an error. */
enum pst_status pstd_spread_file(struct pstd_executor *w, const char *path,
                                 struct pstd_spread *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstd_spread_fini(struct pstd_spread *spread);

#endif
