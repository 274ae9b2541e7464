// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SPREAD_H
#define PENSTOCK_DAEMON_EXEC_SPREAD_H
/* Copies a file that may be visible only to rank 0 to all ranks. Exec
 * thread. */
#include <limits.h>

#include "daemon/exec/collective.h"

struct pstd_spread {
    char path[PATH_MAX]; /* the original on rank 0; elsewhere a copy private to
                            the process */
    int file;            /* descriptor that the path refers to; -1: none */
};

/* COLLECTIVE. Copies rank 0's file `path`. The caller calls fini also after an
 * error. */
enum pst_status pstd_spread_file(struct pstd_executor *w, const char *path,
                                 struct pstd_spread *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstd_spread_fini(struct pstd_spread *spread);

#endif
