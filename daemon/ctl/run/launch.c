// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/run/processes.h"
#include "daemon/ctl/run/setup.h"
#include "stages/base/host/cpu.h"

#define MAX_ARGS (64 + PSTD_MAX_OPTIONS)
/* Limits of Linux for keep-alive: seconds and number of probes. */
#define MAX_KEEPALIVE 30000.0
#define MAX_PROBES    100

struct argv {
    const char *at[MAX_ARGS];
    unsigned n;
    char numbers[3][24]; /* texts of numeric arguments */
    unsigned n_numbers;
};

static void add_arg(struct argv *argv, const char *arg)
{
    if (argv->n + 1 < MAX_ARGS)
        argv->at[argv->n++] = arg;
}

static void add_option(struct argv *argv, const char *name, const char *value)
{
    if (value != NULL) {
        add_arg(argv, name);
        add_arg(argv, value);
    }
}

void pstctl_launch_daemon(struct pst_str *out)
{
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (n > 0) {
        self[n] = '\0';
        slash = strrchr(self, '/');
        if (slash != NULL) {
            *slash = '\0';
            pst_str_addf(out, "%s/penstockd", self);
            if (access(pst_str_text(out), X_OK) == 0)
                return;
            pst_str_fini(out);
        }
    }
    pst_str_add(out, "penstockd");
}

static struct pstctl_program identify_program(void)
{
    struct pst_str path = {0};
    struct pstctl_program ret = {0};
    struct stat st;

    pstctl_launch_daemon(&path);
    if (!path.failed && stat(path.text, &st) == 0)
        ret = (struct pstctl_program){st.st_dev, st.st_ino, st.st_mtim};
    pst_str_fini(&path);
    return ret;
}

bool pstctl_launch_is_replaced(const struct pstctl_launch *launch)
{
    const struct pstctl_program *was = &launch->program,
                                is = identify_program();

    return was->inode != 0 && is.inode != 0 &&
           (was->device != is.device || was->inode != is.inode ||
            was->changed.tv_sec != is.changed.tv_sec ||
            was->changed.tv_nsec != is.changed.tv_nsec);
}

static void add_param(struct argv *argv, const char *name, const char *value)
{
    if (value == NULL)
        return;
    add_arg(argv, "--mca");
    add_arg(argv, name);
    add_arg(argv, value);
}

/* Adds the parameter `name` of Open MPI unless the environment sets it. */
static void add_default(struct argv *argv, const char *name, const char *value)
{
    char set[64];

    (void)snprintf(set, sizeof(set), "OMPI_MCA_%s", name);
    if (getenv(set) == NULL) // NOLINT(concurrency-mt-unsafe)
        add_param(argv, name, value);
}

/* Appends the names of the environment variables that remote ranks get from
 * this process. All other variables of remote ranks are those of their host. */
static void add_names(struct pst_str *out)
{
    pst_str_add(out, "OPENBLAS_NUM_THREADS;OMP_NUM_THREADS");
    for (char **e = environ; *e != NULL; e++)
        if (pst_has_prefix(*e, "PENSTOCK_") || pst_has_prefix(*e, "PST_") ||
            pst_has_prefix(*e, "LD_LIBRARY_PATH="))
            pst_str_addf(out, ";%.*s", (int)strcspn(*e, "="), *e);
}

/* Raises TCP's eager limits above the 1 MiB pieces
 * (stages/layout/params/bucket.c) that replicas exchange between kernels. A
 * larger message is announced first and starts only after both sides have
 * polled again, so the link would be idle during kernels of some milliseconds.
 * tests/bench/link.py measures it. */
static void add_limits(struct argv *argv)
{
    static const char *const names[] = {"btl_tcp_eager_limit",
                                        "btl_tcp_rndv_eager_limit",
                                        "btl_tcp_max_send_size"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        /* 1 MiB + 64 KiB: a piece and its header */
        add_default(argv, names[i], "1114112");
}

static void add_number(struct argv *argv, const char *name, int64_t value)
{
    char *text;

    if (argv->n_numbers == PST_COUNT(argv->numbers))
        return;
    text = argv->numbers[argv->n_numbers++];
    (void)snprintf(text, sizeof(argv->numbers[0]), "%lld", (long long)value);
    add_param(argv, name, text);
}

/* Makes mpirun's daemons probe each other: a daemon ends, with its ranks, if a
 * peer does not answer for about --watchdog. TCP alone would wait for minutes.
 * Ranks that are cut off thus end soon after the others, but not while the link
 * may still recover. */
static void add_keepalive(struct argv *argv, double watchdog)
{
    const int64_t limit = (int64_t)ceil(PST_MIN(watchdog, MAX_KEEPALIVE));
    const int64_t quiet = PST_MAX(limit / 2, 1);
    const int64_t every = limit / (2 * MAX_PROBES) + 1;

    if (watchdog <= 0)
        return;
    add_number(argv, "oob_tcp_keepalive_time", quiet);
    add_number(argv, "oob_tcp_keepalive_intvl", every);
    add_number(argv, "oob_tcp_keepalive_probes", (limit - quiet) / every + 1);
}

static void add_hosts(struct argv *argv, const struct pstd_config *config,
                      const struct pst_str *names)
{
    add_keepalive(argv, pstd_watchdog(config));
    add_param(argv, "mca_base_env_list", names->text);
    add_limits(argv);
}

/* Adds mpirun and its options. crowded: there are more ranks than cores, so
 * waiting ranks yield their core. After the death of a rank the others get 1 s
 * to end: they wait for that rank and cannot stop cleanly. */
static void add_mpirun(struct argv *argv, const struct pstctl_job *job,
                       const struct pstd_config *config, const char *ranks,
                       bool crowded)
{
    add_arg(argv, "mpirun");
    add_arg(argv, "-n");
    add_arg(argv, ranks);
    add_arg(argv, "--oversubscribe");
    add_arg(argv, "--bind-to");
    add_arg(argv, "none");
    add_param(argv, "odls_base_sigkill_timeout", "1");
    if (job->hosts != NULL) {
        add_arg(argv, "--host");
        add_arg(argv, job->hosts);
    }
    if (!job->spread) { /* folders that exist only on this host */
        add_param(argv, "orte_tmpdir_base", job->session);
        add_param(argv, "btl_vader_backing_directory", job->shm);
        /* Open MPI would choose ob1, too, but only after loading network
         * libraries, one of which (libpsm2) sleeps for 0.2 s. */
        add_default(argv, "pml", "ob1");
    }
    add_param(argv, "btl_tcp_if_include", config->interface);
    add_param(argv, "oob_tcp_if_include", config->interface);
    if (crowded)
        add_param(argv, "mpi_yield_when_idle", "1");
}

// NOLINTBEGIN(concurrency-mt-unsafe): the child has one thread
static void set_environment(void)
{
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    if (geteuid() == 0) {
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
}

/* Sets the signal mask and signal actions of the child. At SIGTERM, SIGINT or
 * SIGHUP mpirun would send SIGTERM to all ranks and SIGKILL soon after, even
 * during a save. So these signals are blocked in mpirun, and local ranks see
 * that they are pending (daemon/loop/launcher.h). mpirun's children have them
 * unblocked. SIGUSR1 and SIGHUP, which do not end a job, are ignored until the
 * program installs handlers. SIGINT and SIGTERM have their default action, so
 * that they end the program before it has handlers: a shell starts background
 * jobs with SIGINT ignored, and an ignored signal that reports the client's
 * death would be lost. */
static void set_signal_mask(bool is_mpirun)
{
    sigset_t blocked;

    (void)signal(SIGUSR1, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)sigemptyset(&blocked);
    if (is_mpirun) {
        (void)sigaddset(&blocked, SIGTERM);
        (void)sigaddset(&blocked, SIGINT);
        (void)sigaddset(&blocked, SIGHUP);
    }
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* Runs in the child: executes the program, in a session of its own, which gets
 * no signals from the terminal, and with its output in a file, which never
 * waits for the client. Errors are written to that file. */
static void run_child(const struct argv *argv, int fd,
                      const struct pstctl_job *job, pid_t die_with)
{
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)setsid();
    set_signal_mask(strcmp(argv->at[0], "mpirun") == 0);
    (void)signal(SIGPIPE, SIG_DFL);
    if (die_with > 0) {
        (void)prctl(PR_SET_PDEATHSIG, job->supervised ? SIGKILL : SIGINT);
        if (getppid() != die_with)
            _exit(1);
    }
    for (size_t i = 0; i < PST_COUNT(job->held); i++)
        if (job->held[i] >= 0)
            (void)fcntl(job->held[i], F_SETFD, 0);
    (void)dup2(null >= 0 ? null : fd, STDIN_FILENO);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    set_environment();
    (void)execvp(argv->at[0], (char *const *)argv->at);
    (void)dprintf(STDERR_FILENO, "penstockd: cannot run %s: %s%s%s\n",
                  argv->at[0], strerror(errno),
                  strcmp(argv->at[0], "mpirun") == 0
                      ? " (install Open MPI, package openmpi-bin, or use "
                        "--transport self)"
                      : "",
                  pst_error_tag(PST_E_JOB_PROGRAM));
    _exit(pst_status_exit_code(PST_ERR_CONFIG));
}
// NOLINTEND(concurrency-mt-unsafe)

/* Creates the output file and opens it twice: fds[1] for the child to write,
 * fds[0] for this process to read. Removes an existing file first: if --socket
 * names a folder that others may write to, they could have put a pipe there. */
static enum pst_status open_output(const char *path, int fds[2],
                                   struct pst_diag *diag)
{
    (void)unlink(path);
    fds[1] =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fds[1] < 0)
        return pst_diag_errno(diag, errno, "cannot write %s", path);
    fds[0] = open(path, O_RDONLY | O_CLOEXEC);
    if (fds[0] >= 0)
        return PST_OK;
    (void)close(fds[1]);
    return pst_diag_errno(diag, errno, "cannot read %s", path);
}

static enum pst_status start_child(const struct argv *argv,
                                   const struct pstctl_job *job, pid_t die_with,
                                   struct pstctl_launch *ret,
                                   struct pst_diag *diag)
{
    int fds[2] = {-1, -1};
    pid_t pid;
    enum pst_status status = open_output(job->output, fds, diag);

    if (status != PST_OK)
        return status;
    pid = fork();
    if (pid < 0) {
        const int err = errno;

        (void)close(fds[0]);
        (void)close(fds[1]);
        return pst_diag_errno(diag, err, "cannot start a process");
    }
    if (pid == 0)
        run_child(argv, fds[1], job, die_with);
    (void)close(fds[1]);
    memset(ret, 0, sizeof(*ret));
    ret->pid = pid;
    ret->program = identify_program();
    ret->is_mpirun = strcmp(argv->at[0], "mpirun") == 0;
    ret->err_fd = fds[0];
    ret->killed_rank = ret->exited_rank = -1;
    return PST_OK;
}

/* True for an option that is passed to the ranks if it is given: options of
 * ranks, of runs and of serving, except --ranks and --transport, which the
 * client has decided. */
static bool is_for_ranks(const struct pstd_config *config,
                         const struct pstd_option *row)
{
    if (row->groups & PSTD_OPT_RANKS)
        return strcmp(row->name, "ranks") != 0 &&
               strcmp(row->name, "transport") != 0;
    return (row->groups & PSTD_OPT_TRAIN) != 0 ||
           (config->serve && (row->groups & PSTD_OPT_SERVE) &&
            (row->groups & PSTD_OPT_DAEMON));
}

/* Adds the options of the run, which each rank parses. */
static enum pst_status add_run(struct argv *argv,
                               const struct pstd_config *config,
                               struct pst_str *texts, struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        if (!config->given[i] || !is_for_ranks(config, &rows[i]))
            continue;
        pst_str_addf(&texts[i], "--%s=", rows[i].name);
        if (!pstd_config_text(config, &rows[i], &texts[i]))
            continue;
        if (texts[i].failed)
            return pst_diag_nomem(diag, texts[i].len);
        add_arg(argv, texts[i].text);
    }
    return PST_OK;
}

enum pst_status pstctl_launch(const struct pstd_config *config,
                              const struct pstctl_job *job,
                              struct pstctl_launch *ret, struct pst_diag *diag)
{
    const bool self = !pstctl_setup_is_mpi(config);
    const unsigned threads = PST_MAX(1u, (unsigned)config->threads);
    struct pst_str daemon = {0}, names = {0}, texts[PSTD_MAX_OPTIONS] = {0};
    struct argv argv = {0};
    const unsigned all = pstd_replicas(config) * job->ranks;
    char grid[32], number[16];
    enum pst_status status;

    (void)snprintf(grid, sizeof(grid), "%ux%u", pstd_replicas(config),
                   job->ranks);
    (void)snprintf(number, sizeof(number), "%u", all);
    pstctl_launch_daemon(&daemon);
    if (!self)
        add_mpirun(&argv, job, config, number,
                   job->most_here * threads > pst_cpu_count());
    if (!self && job->spread) {
        add_names(&names);
        add_hosts(&argv, config, &names);
    }
    add_arg(&argv, pst_str_text(&daemon));
    add_arg(&argv, job->plan);
    if (!self)
        add_arg(&argv, "--die-with-parent");
    add_option(&argv, "--transport", self ? "self" : "mpi");
    add_option(&argv, "--ranks", grid);
    add_option(&argv, "--socket", config->socket);
    add_option(&argv, "--job", job->name);
    add_option(&argv, "--one-run", job->run_id);
    add_option(&argv, "--journal", job->journal);
    add_option(&argv, "--kept-run", job->kept_run);
    add_option(&argv, "--tensorboard", config->tensorboard);
    /* Flags are passed even if they are off, since ranks would otherwise take
     * them from the environment. */
    add_arg(&argv, config->serve ? "--serve" : "--serve=no");
    add_arg(&argv, config->stay ? "--stay" : "--stay=no");
    add_arg(&argv,
            config->begin_paused ? "--begin-paused" : "--begin-paused=no");
    status = add_run(&argv, config, texts, diag);
    if (status == PST_OK)
        status = start_child(
            &argv, job,
            job->supervised || config->die_with_client ? getpid() : 0, ret,
            diag);
    for (size_t i = 0; i < PST_COUNT(texts); i++)
        pst_str_fini(&texts[i]);
    pst_str_fini(&daemon);
    pst_str_fini(&names);
    return status;
}

static void handle_bytes(struct pstctl_launch *launch, const char *data,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n') {
            pst_str_addn(&launch->line, data + i, 1);
            continue;
        }
        pstctl_launch_line(launch, pst_str_text(&launch->line));
        pst_str_fini(&launch->line);
    }
}

/* Moves to the beginning of the file if it was truncated (pstd_once_trim in
 * daemon/loop/once.h). */
static void rewind_if_truncated(int fd)
{
    const off_t at = lseek(fd, 0, SEEK_CUR);
    struct stat st;

    if (lseek(fd, at, SEEK_DATA) < 0 && fstat(fd, &st) == 0 && st.st_size < at)
        (void)lseek(fd, 0, SEEK_SET);
}

static void read_output(struct pstctl_launch *launch)
{
    char data[4096];
    ssize_t n;

    while (launch->err_fd >= 0) {
        rewind_if_truncated(launch->err_fd);
        n = read(launch->err_fd, data, sizeof(data));
        if (n > 0) {
            handle_bytes(launch, data, (size_t)n);
        } else if (n == 0) {
            return; /* end of the file so far */
        } else if (errno != EINTR) {
            (void)close(launch->err_fd);
            launch->err_fd = -1;
        }
    }
}

void pstctl_launch_update(struct pstctl_launch *launch)
{
    read_output(launch);
    if (!launch->ended &&
        waitpid(launch->pid, &launch->status, WNOHANG) == launch->pid) {
        launch->ended = true;
        read_output(launch);
    }
}

void pstctl_launch_end(const struct pstctl_launch *launch, bool hard)
{
    const int number = hard || launch->is_mpirun ? SIGKILL : SIGINT;

    if (launch->ended)
        return;
    if (launch->is_mpirun) {
        if (pstctl_processes_kill_children(launch->pid) && !hard)
            return; /* mpirun ends the other ranks and cleans up */
        /* mpirun may still be starting ranks */
        pstctl_processes_freeze(launch->pid);
        (void)pstctl_processes_kill_children(launch->pid);
    }
    /* the child has no session of its own yet */
    if (kill(-launch->pid, number) != 0)
        (void)kill(launch->pid, number);
}

void pstctl_launch_fini(struct pstctl_launch *launch)
{
    if (launch->err_fd >= 0)
        (void)close(launch->err_fd);
    pst_str_fini(&launch->line);
    pst_str_fini(&launch->tail);
    pst_str_fini(&launch->cause);
    pst_str_fini(&launch->crashes);
}
