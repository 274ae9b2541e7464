// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_SETUP_H
#define PENSTOCK_DAEMON_CTL_RUN_SETUP_H
/* Prepares a job before its start: its names, files and plan. One thread. */
#include "daemon/common/config.h"
#include "daemon/common/inputs.h"
#include "daemon/ctl/run/scratch.h"
#include "stages/base/str.h"

struct pstctl_setup {
    const char *plan;           /* path of the plan that ranks load */
    unsigned stages;            /* stages of the plan */
    struct pstctl_scratch temp; /* holds the plan made from a .pt2, the journal,
                                 * and mpirun's files */
    struct pstctl_scratch shm;  /* folder for memory that ranks share */
    struct pst_str made;        /* path of the plan in temp; "": none */
    struct pstd_inputs inputs;  /* digests of the inputs at the first start */
    struct pst_str session;     /* mpirun's session folder */
    struct pst_str journal;     /* path of the journal of events */
    struct pst_str job, socket;
    struct pst_str output, record, last; /* files beside the socket */
};

#define PSTCTL_SETUP_NONE                                                      \
    {                                                                          \
        .temp = PSTCTL_SCRATCH_NONE, .shm = PSTCTL_SCRATCH_NONE                \
    }

enum pst_status pstctl_setup_name(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Finds the plan. A .pt2 is split into a plan in a temporary folder of the job.
 * For --reference, a plan of one stage is made there. */
enum pst_status pstctl_setup_plan(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  unsigned *ret_ranks,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Call before each restart: creates the temporary folder again, with the run's
 * plan, if a program that cleans /tmp has removed it. PST_ERR_MISMATCH: an
 * input of the job has changed: the plan, the model file or start values that
 * it is made from, or the data. */
enum pst_status pstctl_setup_restore(struct pstctl_setup *s,
                                     const struct pstd_config *config,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* True if mpirun starts the ranks. */
bool pstctl_setup_is_mpi(const struct pstd_config *config);
/* Names a journal for the events of all starts, without creating it. */
enum pst_status pstctl_setup_journal(struct pstctl_setup *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Call before each start: creates empty folders for mpirun, if it starts the
 * ranks, and removes those left by killed jobs. */
enum pst_status pstctl_setup_session(struct pstctl_setup *s,
                                     const struct pstd_config *config,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Removes the folders. leave: keeps them, since ranks still use them. */
void pstctl_setup_fini(struct pstctl_setup *s, bool leave);

#endif
