// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_FIND_RUNS_H
#define PENSTOCK_DAEMON_CTL_REPORT_FIND_RUNS_H
/* Finds runs in folders, by their history, logs, evaluations and checkpoints.
 * One thread. */
#include "daemon/common/config.h"
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"

struct pstctl_run {
    const char *path; /* path of the first folder found */
    char id[33];      /* name of the run; "": unknown */
    uint64_t step;
    double loss, best; /* NaN: unknown */
    const char **names, **values;
    size_t n_options;
    /* the options are from a log, which has all that were given */
    bool logged;
    bool metric; /* the logs have evaluations with a metric besides the loss */
};

struct pstctl_add_finding {
    struct pst_arena arena; /* owns all texts */
    struct PST_VEC(struct pstctl_run) runs;
    /* The error of the first folder that was left out because it could not be
     * read; PST_OK: none was left out. */
    struct pst_diag refused;
};

/* Looks for a run in this folder and adds it. If the run was found in another
 * folder before, fills in its unknown members. Files that cannot be read are
 * ignored. *ret: this folder has a run. */
enum pst_status pstctl_found_search(struct pstctl_add_finding *found,
                                    const char *dir, bool *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the value of an option; its default if the value is not known; "" if
 * it has none. */
const char *pstctl_found_value(const struct pstctl_run *run,
                               const struct pstd_option *row);
void pstctl_found_fini(struct pstctl_add_finding *found);

#endif
