// SPDX-License-Identifier: Apache-2.0
/* `penstock run`: starts a job, gives it one run, watches it, ends it; with
 * --max-restarts it starts a job that died again. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ctl/job/attempt.h"
#include "daemon/ctl/job/ends.h"
#include "daemon/ctl/job/restart.h"
#include "stages/base/host/guard.h"
#include "stages/run/headroom.h"

/* A job from its first start to its last end. */
struct supervisor {
    struct pstctl_attempt attempt;
    struct pstctl_record record;
    struct pstctl_past past;
    struct pstctl_budget budget;
    struct pstctl_ranks ranks;
    uint64_t oom_kills; /* when the ranks were started */
};

static enum pst_status check(const struct pstd_config *config,
                             struct pst_diag *diag)
{
    if (config->data == NULL)
        return pst_diag_set(diag, PST_ERR_USAGE, "--data FILE is missing");
    if (config->reference && pstd_ranks(config, 1) * pstd_replicas(config) > 1)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--reference runs the model uncut in one process: "
                            "it goes without -n");
    if (config->max_restarts > 0 && config->checkpoint == NULL)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--max-restarts goes on from checkpoints: say with "
                            "--checkpoint DIR where they are");
    if (config->min_ranks > 0 && config->max_restarts == 0)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--min-ranks is of jobs that are started again: "
                            "give --max-restarts, too");
    if (config->min_ranks > 0 &&
        (config->reference ||
         (config->transport != NULL && strcmp(config->transport, "self") == 0)))
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--min-ranks is of ranks that can be lost one by "
                            "one: with %s all of them are one process",
                            config->reference ? "--reference"
                                              : "--transport self");
    if (config->detach && config->die_with_client)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--detach and --die-with-client contradict each "
                            "other: give one of them");
    return PST_OK;
}

/* One start of the ranks, to its end. */
static enum pst_status start_once(struct supervisor *s,
                                  const struct pstd_config *options,
                                  struct pst_diag *diag)
{
    enum pst_status status;

    s->oom_kills = pst_headroom_oom_kills("");
    s->attempt.ranks = s->ranks.now;
    status = pstctl_attempt_start(&s->attempt, options, diag);
    return status == PST_OK ? pstctl_attempt_watch(&s->attempt, diag) : status;
}

static enum pstctl_cause cause_of(const struct pstctl_attempt *a,
                                  enum pst_status status)
{
    if (status == PST_OK)
        return PSTCTL_CAUSE_DONE;
    if (status == PST_ERR_CANCELLED || status == PST_ERR_TERMINATED)
        return PSTCTL_CAUSE_STOPPED;
    return a->begun ? PSTCTL_CAUSE_FAULT : PSTCTL_CAUSE_REFUSED;
}

/* What happened, and whether the job is started again. */
static void conclude(struct supervisor *s, enum pst_status status,
                     const struct pst_diag *why, struct pstctl_end *ret)
{
    struct pstctl_attempt *a = &s->attempt;
    const unsigned replicas = pstd_replicas(a->config);
    unsigned missing = 0;
    struct pst_diag ignored;

    *ret = (struct pstctl_end){.rank = -1,
                               .exit_code = pst_status_exit_code(status),
                               .step = a->progress.step,
                               .restarts = a->restarts,
                               .ranks = a->ranks * replicas};
    if (pstctl_past_look(&s->past, a->config, &ret->checkpoint, &ignored) !=
        PST_OK)
        ret->checkpoint = s->budget.step;
    if (a->died) {
        pstctl_end_of(&a->launch, a->progress.placement,
                      pst_headroom_oom_kills("") > s->oom_kills, why, ret);
        if (a->homeless) {
            ret->cause = PSTCTL_CAUSE_HOSTS;
            missing = ret->ranks - pstctl_hosts_room(&a->hosts);
        }
        if (pstctl_fewer_ranks(&s->ranks, pstctl_end_is_loss(ret),
                               ret->checkpoint, missing))
            ret->again = pstctl_budget_renew(&s->budget, ret->checkpoint);
        else
            ret->again =
                pstctl_budget_take(&s->budget, ret->checkpoint, &ret->delay_s);
        ret->next_ranks = ret->again ? s->ranks.now * replicas : 0;
    } else {
        ret->cause = cause_of(a, status);
        if (status != PST_OK)
            (void)snprintf(ret->text, sizeof(ret->text), "%s", why->text);
    }
    pstctl_record_end(&s->record, ret);
}

static void print_restart(const struct supervisor *s,
                          const struct pstctl_end *end)
{
    char from[64] = "the beginning", after[32] = "", with[64] = "";

    if (end->checkpoint > 0)
        (void)snprintf(from, sizeof(from), "step %" PRIu64, end->checkpoint);
    if (end->delay_s > 0)
        (void)snprintf(after, sizeof(after), " in %u s", end->delay_s);
    if (end->next_ranks < end->ranks)
        (void)snprintf(with, sizeof(with), " with %u ranks instead of %u",
                       end->next_ranks, end->ranks);
    pstctl_printf(stderr,
                  "penstock: %s; starting the job again%s%s from %s (%" PRIu64
                  " of %" PRIu64 " times without progress)\n",
                  end->text, with, after, from, s->budget.used,
                  s->budget.limit);
}

static enum pst_status give_up(const struct supervisor *s,
                               struct pst_diag *diag)
{
    const struct pst_diag was = *diag;

    if (s->budget.limit == 0)
        return was.status;
    return pst_diag_set(diag, was.status,
                        "%s; the job was started again %" PRIu64
                        " times without a newer checkpoint than that of step "
                        "%" PRIu64 " (--max-restarts)",
                        was.text, s->budget.used, s->budget.step);
}

/* Starts the job again and again, until it ends otherwise than by dying. */
static enum pst_status supervise(struct supervisor *s, struct pst_diag *diag)
{
    const struct pstd_config *config = s->attempt.config;
    enum pst_status status = start_once(s, config, diag);

    while (s->attempt.supervised) {
        struct pstctl_end end;
        struct pstd_config options;
        struct pst_diag other;

        conclude(s, status, diag, &end);
        if (!s->attempt.died)
            break;
        if (!end.again)
            return give_up(s, diag);
        s->past.resumed |= s->attempt.begun;
        print_restart(s, &end);
        pstctl_attempt_end(&s->attempt);
        s->attempt.restarts++;
        status = pstctl_attempt_rest(&s->attempt, end.delay_s, &other);
        if (status == PST_OK)
            status = pstctl_past_config(&s->past, config, &options, &other);
        if (status == PST_OK) {
            status = pstctl_ranks_config(&s->ranks, &options, &other);
            if (status != PST_OK)
                pstd_config_fini(&options);
        }
        if (status != PST_OK) {
            *diag = other;
            break;
        }
        status = start_once(s, &options, diag);
        pstd_config_fini(&options);
    }
    return status;
}

static enum pst_status run_job(const struct pstd_config *config, int *begun_fd,
                               struct pst_diag *diag)
{
    struct supervisor s = {.attempt = {.begun_fd = begun_fd},
                           .budget = {.limit = config->max_restarts},
                           .record = {.log = {.fd = -1}}};
    enum pst_status status = pstctl_attempt_init(&s.attempt, config, diag);

    if (status == PST_OK)
        status = pstctl_ranks_init(&s.ranks, config, s.attempt.setup.stages,
                                   s.attempt.ranks, diag);
    if (status == PST_OK && s.attempt.supervised)
        status = pstctl_past_init(&s.past, config, diag);
    s.budget.step = s.past.step;
    if (status == PST_OK && s.attempt.supervised)
        status = pstctl_record_open(&s.record, config,
                                    pst_str_text(&s.attempt.setup.job), diag);
    if (status == PST_OK)
        status = supervise(&s, diag);
    pstctl_record_close(&s.record);
    pstctl_attempt_fini(&s.attempt);
    return status;
}

/* The job's other end: in a session of its own, without a terminal. */
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
    /* Whoever still waits is told; else last_exit.json says it. */
    if (status != PST_OK && fd >= 0 && write(fd, &diag, sizeof(diag)) < 0)
        _exit(1);
    _exit(pst_status_exit_code(status));
}

/* Until the run has begun, or could not. */
static enum pst_status await_begin(pid_t pid, int fd, struct pst_diag *diag)
{
    struct pst_diag said;
    int code = 0;
    ssize_t n;

    do
        n = read(fd, &said, sizeof(said));
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(said)) {
        said.text[sizeof(said.text) - 1] = '\0';
        return pst_diag_set(diag, said.status, "%s", said.text);
    }
    if (waitpid(pid, &code, WNOHANG) == pid && code != 0)
        return pst_diag_set(diag, PST_ERR_PEER,
                            "the job ended before its run began");
    return PST_OK;
}

static enum pst_status detach(const struct pstd_config *config,
                              struct pst_diag *diag)
{
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
                     : await_begin(pid, fds[0], diag);
    (void)close(fds[0]);
    if (status != PST_OK || config->quiet)
        return status;
    if (config->json)
        pstctl_printf(stdout, "{\"supervisor\": %d}\n", (int)pid);
    else
        pstctl_printf(stdout,
                      "the run has begun; process %d supervises it: `penstock "
                      "watch` shows it, `penstock stop` ends it\n",
                      (int)pid);
    return PST_OK;
}

static enum pst_status run_run(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    const enum pst_status status = check(config, diag);

    if (status != PST_OK)
        return status;
    pst_guard_process(config->core_files);
    return config->detach ? detach(config, diag) : run_job(config, NULL, diag);
}

const struct pstctl_command pstctl_run = {
    "run",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_REFERENCE | PSTD_OPT_PICTURE |
        PSTD_OPT_RUN | PSTD_OPT_DETACH | PSTD_OPT_HOSTS,
    "start ranks, train, end them",
    "Starts mpirun with P ranks of penstockd (or one process with --transport "
    "self),\nwhich do the run, and shows how it goes. Ctrl-C ends it at the "
    "end "
    "of a step, with\na checkpoint if --checkpoint says where; a second one "
    "ends it at once. If the\nterminal is closed, or this command is killed "
    "or stopped (Ctrl-Z), the job goes\non to its end, unless "
    "--die-with-client is given.\nWith --max-restarts a job that died is "
    "started again from its newest checkpoint,\nby this command: then the job "
    "ends if this command is killed. --detach does it in\nthe background.",
    run_run};
