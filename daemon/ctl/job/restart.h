// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_RESTART_H
#define PENSTOCK_DAEMON_CTL_JOB_RESTART_H
/*
 * Whether a job that died is started again, when, and with which options: those
 * of its first start, from the newest good checkpoint that it has made. One
 * thread.
 */
#include "daemon/common/config.h"

/* Restarts in a row that brought no newer checkpoint. */
struct pstctl_budget {
    uint64_t limit; /* of them; 0: the job is never started again */
    uint64_t used;
    uint64_t step; /* newest checkpoint at the newest end; 0: none */
};

/* The job has died; step: its newest good checkpoint, 0: none. False: the
 * budget is spent. *ret_delay_s: to wait first: nothing after progress, then 1,
 * 2, 4 ... 60 seconds. */
bool pstctl_budget_take(struct pstctl_budget *b, uint64_t step,
                        unsigned *ret_delay_s);

/* What the folders of checkpoints said before the first start. */
struct pstctl_past {
    char run[33];  /* name of the run there; "": none */
    bool resumed;  /* an attempt got as far as its first step */
    uint64_t step; /* newest good checkpoint; 0: none */
};

enum pst_status pstctl_past_init(struct pstctl_past *past,
                                 const struct pstd_config *config,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Newest good checkpoint that belongs to the job; 0: none. */
enum pst_status pstctl_past_look(const struct pstctl_past *past,
                                 const struct pstd_config *config,
                                 uint64_t *ret_step,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Options of the next start, into an uninitialised config. */
enum pst_status pstctl_past_config(const struct pstctl_past *past,
                                   const struct pstd_config *config,
                                   struct pstd_config *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
