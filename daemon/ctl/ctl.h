// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_CTL_H
#define PENSTOCK_DAEMON_CTL_CTL_H
/*
 * The commands of penstock. Each gets its options and arguments and returns a
 * status that becomes the exit code; main prints the diagnosis. Results go to
 * standard output, everything else to standard error. One thread.
 */
#include "daemon/common/config.h"

struct pstctl_command {
    const char *name;
    const char *args;    /* for the usage line: "MODEL.pt2 -o PLAN" */
    unsigned min, max;   /* number of arguments */
    uint64_t groups;     /* of options */
    const char *summary; /* one line */
    const char *help;    /* more, or NULL */
    enum pst_status (*run)(const struct pstd_config *config,
                           struct pst_diag *diag);
    bool sandboxed; /* sees what it is given alone (sandbox.h) */
};

extern const struct pstctl_command pstctl_split, pstctl_show, pstctl_plan,
    pstctl_verify, pstctl_run, pstctl_train, pstctl_eval, pstctl_infer,
    pstctl_status, pstctl_attach, pstctl_watch, pstctl_log, pstctl_checkpoint,
    pstctl_pause, pstctl_resume, pstctl_stop, pstctl_trace, pstctl_ops,
    pstctl_modules, pstctl_checkpoints, pstctl_calibrate, pstctl_weights,
    pstctl_swap, pstctl_freeze, pstctl_unfreeze, pstctl_attr, pstctl_flight,
    pstctl_report, pstctl_doctor, pstctl_top, pstctl_manual, pstctl_completion,
    pstctl_explain, pstctl_serve, pstctl_ask_job;

/* All of them; of main. */
const struct pstctl_command *const *pstctl_commands(size_t *ret_n);
/* When this process began, since 1970 UTC. */
uint64_t pstctl_start_us(void);

#endif
