// SPDX-License-Identifier: Apache-2.0
/* Prepares and starts the ranks of a job, and removes the job's files at the
 * end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "daemon/common/interface.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/hosts/probe.h"
#include "daemon/ctl/run/attempt.h"

static enum pst_status block_signals(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); // NOLINT: no other thread
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signal_fd < 0)
        return pst_diag_errno(diag, errno, "cannot wait for signals");
    return PST_OK;
}

/* Removes files of the job, and sockets and locks of killed ranks, when no
 * process of the job is left. Does nothing if another job owns the name now,
 * because the folder was removed meanwhile. */
static void clean_up(struct pstctl_attempt *r)
{
    const int base = r->config->socket == NULL ? pstd_lock_base() : -1;

    if (pstctl_is_owner(&r->owner)) {
        (void)unlink(r->setup.output.text);
        (void)unlink(r->setup.record.text);
        (void)unlink(r->setup.last.text);
        pstctl_release_name(&r->owner, true);
        if (base >= 0)
            pstd_socket_sweep_job(base, r->setup.socket.text);
    }
    pstd_unlock_base(base);
}

/* Makes this process the parent of processes whose launcher has been killed, so
 * that pstctl_attempt_reap() finds them. */
static void adopt_orphans(const struct pstctl_attempt *r)
{
    if (r->supervised)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static enum pst_status make_kept_run(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    if (!r->config->stay)
        return PST_OK;
    r->kept_run = memfd_create("penstock-run", MFD_CLOEXEC);
    return r->kept_run >= 0
               ? PST_OK
               : pst_diag_errno(diag, errno, "cannot make the file of the run");
}

/* If the file of the current run is still empty, writes text to it that the
 * restarted ranks refuse as a run. Clients that wait for the lost run then
 * learn that it is over. */
static void mark_lost_run(const struct pstctl_attempt *r)
{
    static const char lost[] = "lost\n";

    if (r->kept_run >= 0 && r->unsaved.training &&
        lseek(r->kept_run, 0, SEEK_END) == 0 &&
        write(r->kept_run, lost, strlen(lost)) < 0)
        errno = 0;
}

enum pst_status pstctl_attempt_init(struct pstctl_attempt *r,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    int *const begun_fd = r->begun_fd;
    const struct pstd_log_claim log_claim = r->log_claim;
    enum pst_status status;
    char key[33];

    *r = (struct pstctl_attempt){
        .config = config,
        .setup = PSTCTL_SETUP_NONE,
        .owner = {.fd = -1},
        .signal_fd = -1,
        .kept_run = -1,
        .begun_fd = begun_fd,
        .log_claim = log_claim,
        .supervised =
            config->max_restarts > 0 || config->detach || pstd_stays(config),
        .launch = PSTCTL_LAUNCH_NONE,
        .follow = PSTCTL_FOLLOW_NONE,
        .progress = {.out = config->json ? stderr : stdout,
                     .quiet = config->quiet || config->detach},
    };
    pstctl_make_key(key);
    memcpy(r->job, key, PSTD_PAST_JOB);
    status = pstctl_setup_name(&r->setup, config, diag);
    if (status == PST_OK)
        status = pstctl_hosts_init(&r->hosts, config, diag);
    if (status == PST_OK)
        status = block_signals(r, diag);
    if (status == PST_OK)
        status = pstctl_setup_plan(&r->setup, config, &r->ranks, diag);
    if (status == PST_OK)
        status = pstctl_own_name(r->setup.socket.text, r->setup.job.text,
                                 config->socket == NULL, &r->owner, diag);
    if (status == PST_OK && r->supervised)
        status = pstctl_setup_journal(&r->setup, diag);
    if (status == PST_OK)
        status = make_kept_run(r, diag);
    adopt_orphans(r);
    return status;
}

/* Finds the available hosts. The first start requires all given hosts; later
 * ones only as many as the ranks need. */
static enum pst_status find_hosts(struct pstctl_attempt *r, unsigned ranks,
                                  struct pst_diag *diag)
{
    struct pst_str daemon = {0};
    enum pst_status status = PST_OK;

    /* The batch system checks its nodes itself, and may reach them in a way
     * other than ssh. */
    if (r->hosts.list.n == 0 || getenv("SLURM_JOB_ID") != NULL) // NOLINT
        return PST_OK;
    pstctl_launch_daemon(&daemon);
    status = pstctl_hosts_ask(&r->hosts, pst_str_text(&daemon), r->setup.plan,
                              r->config->interface, diag);
    pst_str_fini(&daemon);
    if (status != PST_ERR_NO_DAEMON || r->restarts == 0)
        return status;
    if (pstctl_hosts_slots(&r->hosts) < ranks) {
        r->no_hosts = r->died = true; /* the hosts may come back */
        return status;
    }
    pstctl_printf(stderr, "penstock: %s; the job goes on without them%s\n",
                  diag->text, pst_error_tag(diag->error));
    return PST_OK;
}

static enum pst_status place_ranks(struct pstctl_attempt *r,
                                   struct pstctl_job *job, struct pst_str *text,
                                   struct pst_diag *diag)
{
    const unsigned ranks = pstd_replicas(r->config) * r->ranks;
    enum pst_status status = PST_OK;

    if (r->hosts.list.n > 0 && !pstctl_setup_is_mpi(r->config))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--hosts places ranks of mpirun: leave out "
                            "--transport self and --reference");
    if (r->config->interface != NULL)
        status = pstd_interface_check(r->config->interface, diag);
    if (status == PST_OK)
        status = find_hosts(r, ranks, diag);
    if (status == PST_OK && r->hosts.list.n > 0)
        status = pstctl_hosts_place(&r->hosts, ranks, diag);
    r->spread =
        pstctl_setup_is_mpi(r->config) && pstctl_hosts_are_several(&r->hosts);
    if (status == PST_OK && r->spread && r->setup.made.len > 0)
        status = pst_diag_set(diag, PST_E_RUN_OPTIONS,
                              "other hosts cannot read a plan that is made "
                              "here for the run: make one with `penstock split "
                              "%s -o PLAN` where all hosts see it",
                              r->config->args[0]);
    pstctl_hosts_text(&r->hosts, text);
    if (status == PST_OK && text->failed)
        status = pst_diag_nomem(diag, text->len);
    job->hosts = text->text;
    job->spread = r->spread;
    job->most_here = r->hosts.list.n > 0 ? pstctl_hosts_most(&r->hosts) : ranks;
    return status;
}

enum pst_status pstctl_attempt_start(struct pstctl_attempt *r,
                                     const struct pstd_config *options,
                                     struct pst_diag *diag)
{
    struct pst_str hosts = {0};
    const struct pstctl_conn none = {.fd = -1};
    struct pstctl_job job = {.plan = r->setup.plan,
                             .name = r->setup.job.text,
                             .output = r->setup.output.text,
                             .ranks = r->ranks,
                             .supervised = r->supervised};
    char kept_run[64];
    enum pst_status status;

    if (r->kept_run >= 0) {
        (void)snprintf(kept_run, sizeof(kept_run), "/proc/%d/fd/%d",
                       (int)getpid(), r->kept_run);
        job.kept_run = kept_run;
    }
    mark_lost_run(r);
    status =
        pstctl_own_restore(&r->owner, r->setup.socket.text, r->setup.job.text,
                           r->config->socket == NULL, diag);
    if (status == PST_OK) {
        (void)unlink(r->setup.record.text);
        status = place_ranks(r, &job, &hosts, diag);
    }
    if (status == PST_OK)
        status = pstctl_setup_session(&r->setup, options, diag);
    if (status == PST_OK)
        status = pstctl_follow_init(&r->follow, &none, r->setup.socket.text, 1,
                                    diag);
    pstctl_make_key(r->follow.run_id);
    memcpy(r->follow.run_id, r->job, PSTD_PAST_JOB);
    job.run_id = r->follow.run_id;
    job.session = r->setup.session.text;
    job.shm = r->setup.shm.path.text;
    job.journal = r->setup.journal.text;
    job.held[0] = r->owner.fd;
    job.held[1] = r->setup.temp.fd;
    job.held[2] = r->setup.shm.fd;
    if (status == PST_OK)
        status = pstctl_launch(options, &job, &r->launch, diag);
    if (status == PST_OK)
        pstctl_own_launcher(&r->owner, r->launch.pid);
    pst_str_fini(&hosts);
    return status;
}

void pstctl_attempt_end(struct pstctl_attempt *r)
{
    if (r->supervised)
        pstctl_attempt_reap(r);
    pstctl_launch_fini(&r->launch);
    pstctl_follow_fini(&r->follow);
    pstctl_progress_fini(&r->progress);
    pstd_frame_free(r->end);
    r->end = NULL;
    r->launch = (struct pstctl_launch)PSTCTL_LAUNCH_NONE;
    r->follow = (struct pstctl_follow)PSTCTL_FOLLOW_NONE;
    r->progress =
        (struct pstctl_progress){.out = r->progress.out,
                                 .quiet = r->progress.quiet,
                                 .saved = r->progress.saved,
                                 .saved_step = r->progress.saved_step};
    r->waits = r->stop_sent = r->begun = r->over = r->answered = r->died =
        r->no_hosts = false;
    r->awake = (struct pst_awake){0};
    r->gone_ms = r->stuck_ms = 0;
}

void pstctl_attempt_fini(struct pstctl_attempt *r)
{
    pstctl_attempt_end(r);
    if (!r->left && r->owner.fd >= 0)
        clean_up(r);
    pstctl_setup_fini(&r->setup, r->left);
    pstctl_release_name(&r->owner, false);
    pstctl_hosts_fini(&r->hosts);
    if (r->signal_fd >= 0)
        (void)close(r->signal_fd);
    if (r->kept_run >= 0)
        (void)close(r->kept_run);
    pstd_logfile_release(r->config->log_dir, &r->log_claim, false);
}
