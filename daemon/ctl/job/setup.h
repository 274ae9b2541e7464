// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_SETUP_H
#define PENSTOCK_DAEMON_CTL_JOB_SETUP_H
/* What a job has before it is started: names, files, a plan. One thread. */
#include "daemon/common/config.h"
#include "stages/base/str.h"

/* Of zeros at first. */
struct pstctl_setup {
    const char *plan;
    struct pst_str temp; /* folder of a plan made here */
    struct pst_str job, socket;
    struct pst_str output, record; /* beside the socket */
};

enum pst_status pstctl_setup_name(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* A .pt2 is split into a folder that goes with the run, and so is the only
 * stage of --reference. */
enum pst_status pstctl_setup_plan(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  unsigned *ret_ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* That folder. */
void pstctl_setup_remove(const struct pstctl_setup *s);
void pstctl_setup_fini(struct pstctl_setup *s);

#endif
