// SPDX-License-Identifier: Apache-2.0
/* `penstock serve`: starts a job that answers requests for outputs. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/run/run.h"

static enum pst_status run_serve(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    return pstctl_run_staying(config, "serve", diag);
}

const struct pstctl_command pstctl_serve = {
    "serve",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_SERVE | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_RUN | PSTD_OPT_DETACH |
        PSTD_OPT_HOSTS,
    "start ranks that answer requests for outputs",
    "Starts ranks as run does. They run the model forward, in the mode of "
    "model.eval(),\nwith the newest checkpoint of --checkpoint or the start "
    "values of the plan; `penstock\nask` asks them. Requests that wait share "
    "steps. Ctrl-C, or `penstock stop`, ends the\njob when all requests that "
    "were accepted have their answers; a second one ends it\nat once. Ranks "
    "that die are started again: ten times without a minute of service,\nif "
    "--max-restarts says nothing else. The job ends if this command is "
    "killed;\n--detach does it in the background.",
    run_serve};
