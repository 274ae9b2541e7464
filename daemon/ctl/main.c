// SPDX-License-Identifier: Apache-2.0
/* The client `penstock`: finds the command and its options, and runs it. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/out_queue.h"
#include "daemon/ctl/sandbox.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/control/socket.h"
#include "daemon/common/logfile.h"
#include "daemon/common/plugins.h"
#include "daemon/common/setup.h"
#include "stages/base/host/guard.h"

static const struct pstctl_command *const commands[] = {
#define PSTCTL_COMMAND(id, name) &pstctl_##id,
#include "daemon/ctl/commands.def"
#undef PSTCTL_COMMAND
};

const struct pstctl_command *const *pstctl_commands(size_t *ret_n)
{
    *ret_n = PST_COUNT(commands);
    return commands;
}

static uint64_t start_us;

const char *pstctl_environment(const char *name)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe)

    return text != NULL && *text != '\0' ? text : NULL;
}

uint64_t pstctl_start_us(void)
{
    return start_us;
}

static void print_usage(FILE *out)
{
    pstctl_printf(out, "usage: penstock COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < PST_COUNT(commands); i++)
        pstctl_printf(out, "  %-11s %s\n", commands[i]->name,
                      commands[i]->summary);
    pstctl_printf(out,
                  "\n`penstock COMMAND --help` shows the options of a command; "
                  "`penstock --version`.\n"
                  "Exit codes: 0 ok, 1 failed, 2 there is a difference, 64 "
                  "usage, 65 bad input,\n69 no daemon, 74 input or output, 75 "
                  "try again, 77 not permitted,\n78 configuration, 130 "
                  "interrupted, 143 ended by SIGTERM.\n");
}

static void print_help(const struct pstctl_command *command)
{
    struct pst_str text = {.visible = 1};

    pst_str_addf(&text, "usage: penstock %s %s%s[options]\n\n%s\n",
                 command->name, command->args,
                 *command->args != '\0' ? " " : "", command->summary);
    /* the text is a constant, not from a file, so its newlines are kept */
    if (command->help != NULL) {
        pst_str_add(&text, "\n");
        pst_str_add(&text, command->help);
        pst_str_add(&text, "\n");
    }
    pst_str_add(&text, "\n");
    pstd_config_help(command->groups, command->options, &text);
    pst_str_add(&text, "\n  @FILE                     options from a file of "
                       "lines NAME = VALUE\n");
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
}

static int print_error(const struct pst_diag *diag)
{
    pstctl_printf(stderr, "penstock: %s%s\n", diag->text,
                  pst_error_tag(diag->error));
    return pst_status_exit_code(diag->status);
}

static const struct pstctl_command *find_command(const char *name,
                                                 struct pst_diag *diag)
{
    const char *names[PST_COUNT(commands)];
    int near;

    for (size_t i = 0; i < PST_COUNT(commands); i++) {
        names[i] = commands[i]->name;
        if (strcmp(names[i], name) == 0)
            return commands[i];
    }
    near = pst_nearest(name, names, PST_COUNT(commands));
    if (near >= 0 && (strlen(name) > 3 || names[near][0] == name[0]))
        (void)pst_diag_set(diag, PST_E_COMMAND_UNKNOWN,
                           "unknown command \"%s\"; did you mean %s?", name,
                           names[near]);
    else
        (void)pst_diag_set(diag, PST_E_COMMAND_UNKNOWN,
                           "unknown command \"%s\"; see penstock --help", name);
    return NULL;
}

static void warn_unread(void *ctx, const char *variable, const char *near)
{
    (void)ctx;
    pstctl_printf(stderr, "penstock: warning: nothing reads %s%s%s%s\n",
                  variable, near != NULL ? "; did you mean " : "",
                  near != NULL ? near : "", near != NULL ? "?" : "");
}

static enum pst_status parse_command_line(const struct pstctl_command *command,
                                          struct pstd_config *config, int argc,
                                          char **argv, struct pst_diag *diag)
{
    enum pst_status status = pstd_config_env(config, command->groups, diag);

    pstd_config_env_unread(warn_unread, NULL);
    if (status == PST_OK)
        status = pstd_config_parse(config, command->groups, argc, argv, diag);
    if (status != PST_OK || config->help)
        return status;
    if (config->n_args > command->max)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "\"%s\" is one argument too many; usage: penstock "
                            "%s %s; see penstock %s --help",
                            config->args[command->max], command->name,
                            command->args, command->name);
    if (config->n_args < command->min)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "usage: penstock %s %s; see penstock %s --help",
                            command->name, command->args, command->name);
    return pstd_socket_check_job(config->job, diag);
}

/* True for a pipe that its reader has closed, as `head` does. */
static bool is_closed_pipe(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLOUT};

    return poll(&end, 1, 0) == 1 && (end.revents & POLLERR);
}

/* Writes the waiting output. If that is not possible, ends the process without
 * stdio. */
static void end_output(int code)
{
    if (!pstctl_queue_end())
        _exit(code);
}

/* Flushes output and reports a failure to do so. */
static int finish_output(enum pst_status status, struct pst_diag *diag)
{
    if (status != PST_OK) {
        const int code = print_error(diag);

        end_output(code);
        return code;
    }
    end_output(0);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (is_closed_pipe(STDOUT_FILENO))
            return 0;
        (void)pst_diag_set(diag, PST_E_FILE_OUTPUT,
                           "cannot write to standard output");
        return print_error(diag);
    }
    return 0;
}

static int run_command(const struct pstctl_command *command, int argc,
                       char **argv)
{
    struct pstd_config config;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstd_config_init(&config, &diag);
    if (status != PST_OK)
        return print_error(&diag);
    status = parse_command_line(command, &config, argc, argv, &diag);
    if (status == PST_OK && config.help) {
        print_help(command);
    } else if (status == PST_OK) {
        status = pstd_check_outputs(&config, &diag);
        /* Plugins are loaded before the sandbox begins, since a library may
         * read files when it is loaded. */
        if (status == PST_OK)
            status = pstd_plugins_load(&config, &diag);
        /* Commands that start ranks do not measure here: rank 0 does. */
        if (status == PST_OK &&
            command->groups & (PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_EVAL |
                               PSTD_OPT_INFER))
            status = pstctl_ensure_rates(&config, &diag);
        if (status == PST_OK && command->sandboxed)
            status = pstctl_sandbox(&config, &diag);
        if (status == PST_OK)
            status = command->run(&config, &diag);
    }
    pstd_config_fini(&config);
    return finish_output(status, &diag);
}

/* Sets PATH if it is missing: a shell without PATH uses a default but does not
 * export it, and mpirun would not find ssh or its own programs. */
static void set_default_path(void)
{
    char usual[256];

    // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
    if (confstr(_CS_PATH, usual, sizeof(usual)) <= sizeof(usual))
        (void)setenv("PATH", usual, 0);
    // NOLINTEND(concurrency-mt-unsafe)
}

int main(int argc, char **argv)
{
    const struct pstctl_command *command;
    struct pst_diag diag;

    pst_guard_inherited();
    pst_diag_init(&diag);
    start_us = pstd_now_us();
    set_default_path();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ,
                 /* a write beyond the limit then fails with EFBIG instead of
                  * ending the process, and files are cleaned up */
                 SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return pst_status_exit_code(PST_ERR_USAGE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        pstctl_printf(stdout, "penstock " PST_VERSION "\n");
        return finish_output(PST_OK, &diag);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        print_usage(stdout);
        return finish_output(PST_OK, &diag);
    }
    if (strcmp(argv[1], "help") == 0) {
        command = find_command(argv[2], &diag);
        if (command == NULL)
            return print_error(&diag);
        print_help(command);
        return finish_output(PST_OK, &diag);
    }
    command = find_command(argv[1], &diag);
    return command == NULL ? print_error(&diag)
                           : run_command(command, argc - 1, argv + 1);
}
