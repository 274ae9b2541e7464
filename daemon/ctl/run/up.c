// SPDX-License-Identifier: Apache-2.0
/* `penstock up`: starts a job that waits for runs. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/run/run.h"

#define RESTARTS "10" /* default of --max-restarts */

enum pst_status pstctl_run_staying(const struct pstd_config *config,
                                   const char *kind, struct pst_diag *diag)
{
    struct pstd_config mine;
    enum pst_status status;

    status = pstd_config_copy(&mine, config, diag);
    if (status != PST_OK)
        return status;
    mine.args = config->args; /* positional arguments are not copied */
    mine.n_args = config->n_args;
    status = pstd_config_set(&mine, PSTD_OPT_DAEMON, kind, "yes", diag);
    if (status == PST_OK && !PSTD_GIVEN(config, max_restarts))
        status = pstd_config_set(&mine, PSTD_OPT_RUN, "max-restarts", RESTARTS,
                                 diag);
    if (status == PST_OK)
        status = pstctl_run_job(&mine, diag);
    pstd_config_fini(&mine);
    return status;
}

static enum pst_status run_up(const struct pstd_config *config,
                              struct pst_diag *diag)
{
    if (config->min_ranks > 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--min-ranks is for `penstock run`: a job of "
                            "`penstock up` keeps the ranks that it was given");
    if (config->detach && config->die_with_client)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--detach and --die-with-client contradict each "
                            "other: give one of them");
    return pstctl_run_staying(config, "stay", diag);
}

const struct pstctl_command pstctl_up = {
    "up",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_RUN | PSTD_OPT_COURSE |
        PSTD_OPT_DETACH | PSTD_OPT_HOSTS,
    "start ranks that wait for runs",
    "Starts ranks as `penstock run` does. They wait until `penstock train` "
    "gives\n"
    "them runs, one after the other; options of a run that are given here are "
    "the\n"
    "defaults of these runs. Ctrl-C or `penstock stop` ends the job at the end "
    "of a\n"
    "step, with a checkpoint if the run has --checkpoint. Ranks that die are "
    "started\n"
    "again, ten times without a minute in between, unless --max-restarts says\n"
    "otherwise. Their run goes on from its newest checkpoint; after three "
    "starts\n"
    "without a newer one it is given up. The job ends if this command is "
    "killed;\n"
    "--detach starts it in the background.",
    run_up};
