// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SETUP_H
#define PENSTOCK_DAEMON_CTL_RUN_SETUP_H
/* What a job has before it is started: names, files, a plan. One thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/run/scratch.h"
#include "stages/base/str.h"

struct pstctl_setup {
    const char *plan;
    unsigned stages;            /* of it */
    struct pstctl_scratch temp; /* of a plan made here, of mpirun's files */
    struct pstctl_scratch shm;  /* memory that ranks share */
    struct pst_str made;        /* that plan */
    struct pst_str session;     /* mpirun's */
    struct pst_str journal;     /* of events */
    struct pst_str job, socket;
    struct pst_str output, record, last; /* beside the socket */
};

#define PSTCTL_SETUP_NONE                                                      \
    {                                                                          \
        .temp = PSTCTL_SCRATCH_NONE, .shm = PSTCTL_SCRATCH_NONE                \
    }

enum pst_status pstctl_setup_name(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* A .pt2 is split into a folder that goes with the run, and so is the only
 * stage of --reference. */
enum pst_status pstctl_setup_plan(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  unsigned *ret_ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Before another start: a program that cleans /tmp may have removed the folder.
 * There is another one then, with the plan that was made for the run. */
enum pst_status pstctl_setup_again(struct pstctl_setup *s,
                                   const struct pstd_config *config,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Are the ranks mpirun's? */
bool pstctl_setup_is_mpi(const struct pstd_config *config);
/* A file for the events of all starts, which is not made here. */
enum pst_status pstctl_setup_journal(struct pstctl_setup *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Before each start: empty folders for mpirun, if it is to start the ranks.
 * What jobs that were killed have left of theirs is removed. */
enum pst_status pstctl_setup_session(struct pstctl_setup *s,
                                     const struct pstd_config *config,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* leave: the folders to the ranks that use them. */
void pstctl_setup_fini(struct pstctl_setup *s, bool leave);

#endif
