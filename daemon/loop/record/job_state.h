// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_JOB_STATE_H
#define PENSTOCK_DAEMON_LOOP_RECORD_JOB_STATE_H
/*
 * State machine of a daemon. One function makes every transition and calls the
 * listener (the loop writes the event "state"). Loop thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

/* X(id, name, set of states that may follow) */
#define PSTD_JOB_LIST(X)                                                       \
    X(IDLE, "idle", PSTD_IN_LOADING | PSTD_IN_STOPPING)                        \
    X(LOADING, "loading", PSTD_IN_READY | PSTD_IN_FAILED | PSTD_IN_STOPPING)   \
    X(READY, "ready",                                                          \
      PSTD_IN_TRAINING | PSTD_IN_SERVING | PSTD_IN_FAILED | PSTD_IN_STOPPING)  \
    X(TRAINING, "training", PSTD_IN_READY | PSTD_IN_FAILED | PSTD_IN_STOPPING) \
    X(SERVING, "serving", PSTD_IN_FAILED | PSTD_IN_STOPPING)                   \
    X(STOPPING, "stopping", PSTD_IN_FAILED)                                    \
    X(FAILED, "failed", 0)

enum pstd_job_state {
#define PSTD_JOB_ROW(id, name, next) PSTD_JOB_##id,
    PSTD_JOB_LIST(PSTD_JOB_ROW)
#undef PSTD_JOB_ROW
        PSTD_N_JOB_STATES
};

/* Sets of states. */
enum {
#define PSTD_JOB_BIT(id, name, next) PSTD_IN_##id = 1 << PSTD_JOB_##id,
    PSTD_JOB_LIST(PSTD_JOB_BIT)
#undef PSTD_JOB_BIT
        PSTD_IN_ANY = (1 << PSTD_N_JOB_STATES) - 1
};

typedef void (*pstd_job_fn)(void *ctx, enum pstd_job_state from,
                            enum pstd_job_state to);

struct pstd_job {
    enum pstd_job_state state;
    pstd_job_fn changed; /* may be NULL */
    void *ctx;
};

const char *pstd_job_name(enum pstd_job_state state);
/* Makes a transition. False, without effect, if the table does not allow it.
 * True, without effect, if the job is in that state already. */
bool pstd_job_set_state(struct pstd_job *job, enum pstd_job_state to);
/* Returns PST_ERR_BUSY, naming the state and the allowed ones, if the job is
 * not in one of the states. */
enum pst_status pstd_job_check_state(const struct pstd_job *job,
                                     unsigned states, const char *command,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
