// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/job_state.h"

#include "stages/base/str.h"

/* Row of the table of states. next: set of states that may follow. */
struct row {
    const char *name;
    unsigned next;
};

static const struct row rows[] = {
#define ROW(id, name, next) {(name), (next)},
    PSTD_JOB_LIST(ROW)
#undef ROW
};

const char *pstd_job_name(enum pstd_job_state state)
{
    return rows[state].name;
}

bool pstd_job_set_state(struct pstd_job *job, enum pstd_job_state to)
{
    const enum pstd_job_state from = job->state;

    if (from == to)
        return true;
    if (!(rows[from].next & (1u << to)))
        return false;
    job->state = to;
    if (job->changed != NULL)
        job->changed(job->ctx, from, to);
    return true;
}

enum pst_status pstd_job_check_state(const struct pstd_job *job,
                                     unsigned states, const char *command,
                                     struct pst_diag *diag)
{
    struct pst_str names = {0};
    enum pst_status status;

    if (states & (1u << job->state))
        return PST_OK;
    for (unsigned i = 0; i < PSTD_N_JOB_STATES; i++)
        if (states & (1u << i))
            pst_str_addf(&names, "%s%s", names.len > 0 ? " or " : "",
                         rows[i].name);
    status = pst_diag_set(diag, PST_E_JOB_STATE,
                          "%s needs a job that is %s; this one is %s", command,
                          pst_str_text(&names), rows[job->state].name);
    pst_str_fini(&names);
    return status;
}
