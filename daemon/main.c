// SPDX-License-Identifier: Apache-2.0
/* penstockd: runs one rank of a job, or all ranks with transport self. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/common/control/socket.h"
#include "daemon/common/interface.h"
#include "daemon/loop/control.h"
#include "daemon/loop/loop.h"
#include "daemon/loop/signals.h"
#include "stages/base/host/guard.h"
#include "stages/optim/rate.h"
#include "stages/sched/sched.h"

#define GROUPS                                                                 \
    (PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_DAEMON | PSTD_OPT_CONNECT)

static void print_help(void)
{
    struct pst_str text = {0};
    size_t n;
    const struct pst_sched_row *rows = pst_sched_rows(&n);

    pst_str_add(&text,
                "usage: penstockd PLAN [options]\n"
                "       mpirun -n P penstockd PLAN [options]\n\n"
                "Runs one rank of a plan that `penstock split` made, or all "
                "of them with\n--transport self. Work comes through the "
                "control socket (`penstock train`);\noptions of a run given "
                "here hold where a request does not say otherwise.\n"
                "Every option can be set as PENSTOCK_NAME in the "
                "environment.\n\n");
    pstd_config_help(GROUPS, NULL, &text);
    pst_str_add(&text, "  --version\n\nschedules:\n");
    for (size_t i = 0; i < n; i++)
        if (rows[i].trains)
            pst_str_addf(&text, "  %-16s %s\n", rows[i].name, rows[i].summary);
    pst_str_add(&text, "\nlearning rates (--lr-schedule):\n");
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++)
        pst_str_addf(&text, "  %-16s %s\n",
                     pst_lr_row((enum pst_lr_schedule)i)->name,
                     pst_lr_row((enum pst_lr_schedule)i)->summary);
    (void)fputs(pst_str_text(&text), stdout);
    pst_str_fini(&text);
}

static int print_error(const struct pst_diag *diag)
{
    (void)fprintf(stderr, "penstockd: %s%s\n", diag->text,
                  pst_error_tag(diag->error));
    return pst_status_exit_code(diag->status);
}

/* Prints a warning about an environment variable that nothing reads; only on
 * one rank, and not in a job of `penstock run`, which has printed it. near: the
 * name that may have been intended, or NULL. */
static void warn_unread(void *ctx, const char *variable, const char *near)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"); // NOLINT: one thread
    const struct pstd_config *config = ctx;
    struct pst_str text = {.visible = true};

    if (config->run_id != NULL || (rank != NULL && strcmp(rank, "0") != 0))
        return;
    pst_str_addf(&text, "penstockd: warning: nothing reads %s", variable);
    if (near != NULL)
        pst_str_addf(&text, "; did you mean %s?", near);
    (void)fprintf(stderr, "%s\n", pst_str_text(&text));
    pst_str_fini(&text);
}

/* Makes the kernel kill this process when its parent dies; otherwise ranks that
 * do not communicate at that moment would outlive a killed launcher. */
static bool follow_parent(void)
{
    const pid_t parent = getppid();

    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

/* Raises the limit of open files, so that clients leave enough descriptors for
 * everything else. */
static void raise_file_limit(void)
{
    const rlim_t wanted = 4 * PSTD_MAX_CLIENTS;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    files.rlim_cur = PST_MIN(files.rlim_max, wanted);
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static int run(struct pstd_config *config, int argc, char **argv)
{
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstd_config_env(config, GROUPS, &diag);
    if (status == PST_OK)
        status = pstd_config_parse(config, GROUPS, argc, argv, &diag);
    if (status != PST_OK)
        return print_error(&diag);
    if (config->help) {
        print_help();
        return 0;
    }
    pstd_config_env_unread(warn_unread, config);
    if (config->n_args != 1)
        status = pst_diag_set(&diag, PST_E_COMMAND_ARGUMENTS,
                              "one PLAN is wanted, %zu were given; see --help",
                              config->n_args);
    else if (config->socket != NULL)
        status = pstd_socket_check(config->socket, &diag);
    if (status == PST_OK)
        status = pstd_socket_check_job(config->job, &diag);
    if (status != PST_OK)
        return print_error(&diag);
    if (config->die_with_parent && !follow_parent())
        return pst_status_exit_code(PST_ERR_PEER);
    pst_guard_process(config->core_files);
    raise_file_limit();
    /* Makes writes to closed sockets, and beyond the file size limit, fail
     * instead of killing the process. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return pstd_daemon_run(config, config->args[0]);
}

/* Prints the version, which daemon/ctl/hosts/probe.c reads. If this host lacks
 * the network interface, prints why and returns 3 instead; interface may be
 * NULL. */
static int print_version(const char *interface)
{
    struct pst_diag diag;

    if (interface != NULL && pstd_interface_check(interface, &diag) != PST_OK) {
        (void)puts(diag.text);
        return 3;
    }
    (void)puts("penstockd " PST_VERSION);
    return 0;
}

int main(int argc, char **argv)
{
    struct pstd_config config;
    struct pst_diag diag;
    int code;

    pstd_signals_ignore();
    pst_guard_inherited();
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "--version") == 0)
        return print_version(argc == 3 ? argv[2] : NULL);
    if (pstd_config_init(&config, &diag) != PST_OK)
        return print_error(&diag);
    code = run(&config, argc, argv);
    pstd_config_fini(&config);
    return code;
}
