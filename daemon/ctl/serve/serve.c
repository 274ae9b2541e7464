// SPDX-License-Identifier: Apache-2.0
/* `penstock serve`: starts a job that answers requests for outputs. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/run/run.h"

static enum pst_status run_serve(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    return pstctl_run_staying(config, "serve", diag);
}

static const struct pstd_option_help serve_options[] = {
    PSTCTL_ONE_SIZE,
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_serve = {
    "serve",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_SERVE | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_RUN | PSTD_OPT_DETACH |
        PSTD_OPT_HOSTS,
    "start ranks that answer requests for outputs",
    "Starts ranks as `penstock run` does. They run the model forward, in the "
    "mode of\n"
    "model.eval(), with the newest checkpoint of --checkpoint or the start "
    "values of\n"
    "the plan. `penstock ask` sends them requests; requests that wait share "
    "steps.\n"
    "Ctrl-C or `penstock stop` ends the job when all accepted requests are "
    "answered;\n"
    "a second Ctrl-C ends it at once. Ranks that die are started again, ten "
    "times\n"
    "without a minute of service, unless --max-restarts says otherwise. The "
    "job ends\n"
    "if this command is killed; --detach starts it in the background.",
    run_serve,
    false,
    serve_options};
