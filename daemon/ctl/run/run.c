// SPDX-License-Identifier: Apache-2.0
/* `penstock run`: starts a job for one run, watches it and ends it; with
 * --max-restarts it restarts a job that died. */
#include "daemon/ctl/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/logfile.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/out_queue.h"
#include "daemon/ctl/run/attempt.h"
#include "daemon/ctl/run/supervise.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/host/guard.h"
#include "stages/base/host/headroom.h"

/* A job and the state of its starts. */
struct job {
    struct pstctl_attempt attempt;
    uint64_t oom_kills; /* kernel's count of OOM kills before the start */
};

/* Checks that the model can be opened, so that a mistyped path is reported
 * before any other mistake. */
static enum pst_status check_model(const char *path, struct pst_diag *diag)
{
    struct pst_file file = {.fd = -1};
    enum pst_status status;

    if (pstd_is_plan(path))
        return PST_OK;
    status = pst_file_open(path, &file, diag);
    pst_file_close(&file);
    return status;
}

static enum pst_status check_options(const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    if (check_model(config->args[0], diag) != PST_OK)
        return diag->status;
    if (config->data == NULL)
        return pst_diag_set(diag, PST_E_DATA_MISSING, "--data FILE is missing");
    if (config->reference && pstd_ranks(config, 1) * pstd_replicas(config) > 1)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--reference runs the model uncut in one process: "
                            "leave out -n");
    if (config->max_restarts > 0 && config->checkpoint == NULL)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--max-restarts continues from checkpoints: give "
                            "their folder with --checkpoint DIR");
    if (config->min_ranks > 0 && config->max_restarts == 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--min-ranks is for jobs that are started again: "
                            "give --max-restarts, too");
    if (config->min_ranks > 0 &&
        (config->reference ||
         (config->transport != NULL && strcmp(config->transport, "self") == 0)))
        return pst_diag_set(
            diag, PST_E_RUN_OPTIONS,
            "--min-ranks is for ranks that can fail one by one: "
            "with %s all of them are one process",
            config->reference ? "--reference" : "--transport self");
    if (config->detach && config->die_with_client)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--detach and --die-with-client contradict each "
                            "other: give one of them");
    if (!config->quiet)
        pstctl_note_unused(config);
    return PST_OK;
}

static enum pst_status run_once(void *ctx, const struct pstd_config *options,
                                unsigned ranks, struct pstctl_fate *ret,
                                struct pst_diag *diag)
{
    struct job *job = ctx;
    struct pstctl_attempt *a = &job->attempt;
    enum pst_status status;

    job->oom_kills = pst_headroom_oom_kills("");
    a->ranks = ranks;
    status = a->restarts > 0 ? pstctl_setup_restore(&a->setup, a->config, diag)
                             : PST_OK;
    if (status == PST_OK)
        status = pstctl_attempt_start(a, options, diag);
    if (status == PST_OK)
        status = pstctl_attempt_watch(a, diag);
    *ret = (struct pstctl_fate){
        .died = a->died,
        .asked = pstctl_attempt_stop_error(a),
        .forced = a->signals > 1,
        .begun = a->begun,
        .no_hosts = a->no_hosts,
        .slots = a->no_hosts ? pstctl_hosts_slots(&a->hosts) : 0,
        .oom = pst_headroom_oom_kills("") > job->oom_kills,
        .step = a->unsaved.step,
        .saved = a->progress.saved ? a->progress.saved_step : 0,
        .unsaved = &a->unsaved,
        .begun_s = a->begun ? pst_now() - a->begun_at : 0,
        .launch = &a->launch,
        .placement = a->progress.placement};
    return status;
}

static void clear_start(void *ctx)
{
    struct job *job = ctx;

    pstctl_attempt_end(&job->attempt);
    job->attempt.restarts++;
}

static enum pst_status wait_to_restart(void *ctx, unsigned seconds,
                                       struct pst_diag *diag)
{
    struct job *job = ctx;

    return pstctl_attempt_wait(&job->attempt, seconds, diag);
}

/* Runs a job without a supervisor. Its end is not recorded, so the record of an
 * earlier job is removed: from the folder of logs at once; from the folder of
 * checkpoints only when the run has begun, since until then a running job may
 * use it. */
static enum pst_status run_alone(struct job *job, unsigned ranks,
                                 struct pst_diag *diag)
{
    const struct pstd_config *config = job->attempt.config;
    struct pstctl_fate fate;
    enum pst_status status;

    pstctl_record_remove(config->log_dir);
    status = run_once(job, config, ranks, &fate, diag);
    if (fate.begun)
        pstctl_record_remove(config->checkpoint);
    if (fate.died)
        pstctl_end_explain(fate.launch, fate.oom, diag);
    return status;
}

static enum pst_status run_job(const struct pstd_config *config, int *begun_fd,
                               struct pst_diag *diag)
{
    struct job job = {
        .attempt = {.begun_fd = begun_fd, .log_claim = {.fd = -1}}};
    struct pstctl_supervisor s = {
        .config = config,
        .starter = {run_once, clear_start, wait_to_restart, &job},
        .record = {.log = {.fd = -1}}};
    struct pstctl_attempt *a = &job.attempt;
    enum pst_status status = PST_OK;

    /* A job with --stay executes runs of other clients, which are checked when
     * they begin. */
    if (!config->stay)
        status = pstd_check_log_dir(config, diag);
    if (status == PST_OK && config->log_dir != NULL)
        status = pstd_logfile_claim(config->log_dir, &a->log_claim, diag);
    if (status != PST_OK)
        return status;
    pstctl_queue_begin();
    status = pstctl_attempt_init(a, config, diag);
    if (status == PST_OK)
        status = pstctl_ranks_init(&s.ranks, config, a->setup.stages, a->ranks,
                                   diag);
    if (status == PST_OK && a->supervised)
        status =
            pstctl_record_open(&s.record, config, pst_str_text(&a->setup.job),
                               a->setup.last.text, diag);
    s.record.owner = &a->owner;
    memcpy(s.job, a->job, sizeof(s.job));
    if (status == PST_OK)
        status = a->supervised ? pstctl_supervise(&s, diag)
                               : run_alone(&job, s.ranks.now, diag);
    pstctl_record_close(&s.record);
    if (a->owner.fd >= 0 && !a->left)
        pstctl_own_record_end(&a->owner, status, diag);
    if (a->signals > 0)
        pstctl_queue_shorten_wait();
    pstctl_attempt_fini(a);
    return status;
}

/* Turns the process into the job's supervisor, in its own session, without a
 * terminal. */
static void become_supervisor(const struct pstd_config *config, int fd)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct pst_diag diag;
    enum pst_status status;

    (void)setsid();
    for (int i = 0; null >= 0 && i < 3; i++)
        (void)dup2(null, i);
    pst_diag_init(&diag);
    status = run_job(config, &fd, &diag);
    /* Reports the outcome to the parent process if it still waits. Otherwise
     * only last_exit.json has the outcome. */
    diag.status = status;
    if (fd >= 0 && write(fd, &diag, sizeof(diag)) < 0)
        _exit(1);
    _exit(pst_status_exit_code(status));
}

/* Waits until the supervisor reports that the run has begun, or why it could
 * not begin. If it ends without a report, it was killed. */
static enum pst_status await_begin(int fd, struct pst_diag *diag)
{
    struct pst_diag said;
    ssize_t n;

    do
        n = read(fd, &said, sizeof(said));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(said))
        return pst_diag_set(diag, PST_E_RUN_KILLED,
                            "the job ended before its run began");
    said.text[sizeof(said.text) - 1] = '\0';
    return said.status == PST_OK ? PST_OK
                                 : pst_diag_pass(diag, &said, "%s", said.text);
}

static enum pst_status run_detached(const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    const char *what = pstd_stays(config) ? "job" : "run";
    int fds[2];
    pid_t pid;
    enum pst_status status;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return pst_diag_errno(diag, errno, "cannot make a pipe");
    pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        become_supervisor(config, fds[1]);
    }
    (void)close(fds[1]);
    status = pid < 0 ? pst_diag_errno(diag, errno, "cannot start a process")
                     : await_begin(fds[0], diag);
    (void)close(fds[0]);
    if (status != PST_OK || config->quiet)
        return status;
    if (config->json)
        pstctl_printf(stdout, "{\"supervisor\": %d}\n", (int)pid);
    else
        pstctl_printf(stdout,
                      "the %s has begun; process %d supervises it: `penstock "
                      "watch` shows it, `penstock stop` ends it\n",
                      what, (int)pid);
    /* The run continues even if this cannot be printed. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        pstctl_printf(stderr,
                      "penstock: process %d supervises the %s, which has "
                      "begun; cannot write to standard output\n",
                      (int)pid, what);
        __fpurge(stdout);
        clearerr(stdout);
    }
    return PST_OK;
}

enum pst_status pstctl_run_job(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    pst_guard_process(config->core_files);
    return config->detach ? run_detached(config, diag)
                          : run_job(config, NULL, diag);
}

static enum pst_status run_run(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    const enum pst_status status = check_options(config, diag);

    return status == PST_OK ? pstctl_run_job(config, diag) : status;
}

const struct pstctl_command pstctl_run = {
    "run",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_REFERENCE | PSTD_OPT_PICTURE |
        PSTD_OPT_RUN | PSTD_OPT_COURSE | PSTD_OPT_DETACH | PSTD_OPT_HOSTS,
    "start ranks, train, end the ranks",
    "Starts mpirun with P ranks of penstockd (or one process with --transport "
    "self)\n"
    "and shows how the run goes. Ctrl-C ends it at the end of a step, with a\n"
    "checkpoint if --checkpoint is given; a second Ctrl-C ends it at once. If "
    "the\n"
    "terminal is closed, or this command is killed or stopped (Ctrl-Z), the "
    "job goes\n"
    "on to its end, unless --die-with-client is given.\n"
    "With --max-restarts, this command starts a job that died again from its "
    "newest\n"
    "checkpoint; such a job ends if this command is killed. With --detach that "
    "is\n"
    "done in the background.",
    run_run};
