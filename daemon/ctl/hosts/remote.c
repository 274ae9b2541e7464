// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/hosts/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/base/host/alive.h"

#define MAX_WORDS 32
#define MAX_OUT   ((size_t)1 << 20)
/* maximum number of processes that run in parallel; well below the usual limits
 * of a user's processes */
#define AT_ONCE 64
/* time that a process has to end after closing its output */
#define END_MS 2000

/* The command that reaches a host, "ssh -x", split into words. */
struct agent {
    char text[1024];
    char *words[MAX_WORDS];
    unsigned n;
};

/* Finds the command that reaches hosts like mpirun: OMPI_MCA_plm_rsh_agent has
 * alternatives separated by ':', of which the first is used. Adds options so
 * that ssh neither prompts nor waits longer than `seconds`. */
static enum pst_status find_agent(struct agent *a, unsigned seconds,
                                  struct pst_diag *diag)
{
    const char *text =
        getenv("OMPI_MCA_plm_rsh_agent"); // NOLINT(concurrency-mt-unsafe)
    const char *base;
    char *save = NULL;

    if (text == NULL || *text == '\0')
        text = "ssh";
    (void)snprintf(a->text, sizeof(a->text), "%.*s",
                   (int)PST_MIN(strcspn(text, ":"), sizeof(a->text) - 1), text);
    a->n = 0;
    for (char *w = strtok_r(a->text, " ", &save);
         w != NULL && a->n + 8 < MAX_WORDS; w = strtok_r(NULL, " ", &save))
        a->words[a->n++] = w;
    if (a->n == 0)
        return pst_diag_set(diag, PST_E_HOSTS_AGENT,
                            "OMPI_MCA_plm_rsh_agent names no program");
    base = strrchr(a->words[0], '/');
    if (strcmp(base != NULL ? base + 1 : a->words[0], "ssh") == 0) {
        static char batch[] = "-oBatchMode=yes", timeout[64];

        (void)snprintf(timeout, sizeof(timeout), "-oConnectTimeout=%u",
                       PST_MAX(1u, seconds / 2));
        a->words[a->n++] = batch;
        a->words[a->n++] = timeout;
    }
    return PST_OK;
}

void pstctl_remote_quote(const char *word, struct pst_str *out)
{
    pst_str_add(out, "'");
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'')
            pst_str_add(out, "'\\''");
        else
            pst_str_addn(out, c, 1);
    }
    pst_str_add(out, "'");
}

/* Runs in the child. On this host executes `command`; for another host executes
 * the agent with `quoted`, a word that makes any remote shell pass the command
 * to sh. */
static void run_child(const struct agent *agent, const struct pstctl_host *host,
                      const char *command, const char *quoted, int fd)
{
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char *words[MAX_WORDS + 3];
    unsigned n = 0;
    sigset_t none;

    (void)setsid();
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)dup2(null >= 0 ? null : fd, STDIN_FILENO);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    if (host->local) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    } else {
        for (; n < agent->n; n++)
            words[n] = agent->words[n];
        words[n++] = host->name;
        words[n++] = (char *)(uintptr_t)quoted;
        words[n] = NULL;
        (void)execvp(words[0], words);
    }
    (void)dprintf(STDOUT_FILENO, "cannot run %s: %s\n",
                  host->local ? "sh" : agent->words[0], strerror(errno));
    _exit(255);
}

static enum pst_status start_process(struct pstctl_remote *r,
                                     const struct agent *agent,
                                     const char *command, const char *quoted,
                                     struct pst_diag *diag)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return pst_diag_errno(diag, errno, "cannot make a pipe");
    r->pid = fork();
    if (r->pid == 0)
        run_child(agent, r->host, command, quoted, fds[1]);
    (void)close(fds[1]);
    if (r->pid < 0) {
        const int err = errno;

        (void)close(fds[0]);
        return pst_diag_errno(diag, err, "cannot start a process");
    }
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    r->fd = fds[0];
    return PST_OK;
}

/* Returns the status from waitpid. Kills a process that does not end after
 * closing its output. Gives up if that has no effect, for instance because the
 * process waits for a disk. */
static int wait_process(pid_t pid)
{
    int status = 0;
    pid_t ended = 0;

    for (unsigned ms = 0; ended == 0 && ms < 2 * END_MS; ms++) {
        ended = waitpid(pid, &status, WNOHANG);
        if (ms == END_MS)
            (void)kill(-pid, SIGKILL);
        if (ended == 0)
            (void)usleep(1000);
    }
    return ended == pid ? status : SIGKILL;
}

/* Waits for a process that has closed its output; late: kills it first. */
static void end_process(struct pstctl_remote *r, bool late)
{
    int status;

    if (r->fd >= 0)
        (void)close(r->fd);
    r->fd = -1;
    if (r->pid <= 0)
        return;
    if (late)
        (void)kill(-r->pid, SIGKILL);
    r->late = late;
    status = wait_process(r->pid);
    r->pid = 0;
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void read_output(struct pstctl_remote *r)
{
    char data[4096];
    const ssize_t n = read(r->fd, data, sizeof(data));

    if (n > 0 && r->out.len < MAX_OUT)
        pst_str_addn(&r->out, data, (size_t)n);
    else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        end_process(r, false);
}

/* Reads the output of n processes until all have ended; kills those that still
 * run at the time `until`. */
static void wait_all(struct pstctl_remote *at, size_t n, uint64_t until)
{
    for (;;) {
        struct pollfd fds[AT_ONCE];
        struct pstctl_remote *whose[AT_ONCE];
        nfds_t open = 0;
        const uint64_t now = pst_now_ms();

        for (size_t i = 0; i < n; i++) {
            if (at[i].fd < 0)
                continue;
            fds[open] = (struct pollfd){.fd = at[i].fd, .events = POLLIN};
            whose[open++] = &at[i];
        }
        if (open == 0)
            return;
        if (now < until)
            (void)poll(fds, open, (int)(until - now));
        for (nfds_t i = 0; i < open; i++) {
            if (now >= until)
                end_process(whose[i], true);
            else if (fds[i].revents != 0)
                read_output(whose[i]);
        }
    }
}

enum pst_status pstctl_remote_run(struct pstctl_remote *at, size_t n,
                                  const char *command, unsigned seconds,
                                  struct pst_diag *diag)
{
    struct agent agent;
    struct pst_str quoted = {0};
    enum pst_status status = find_agent(&agent, seconds, diag);

    pst_str_add(&quoted, "exec sh -c ");
    pstctl_remote_quote(command, &quoted);
    if (status == PST_OK && quoted.failed)
        status = pst_diag_nomem(diag, strlen(command));
    for (size_t first = 0; status == PST_OK && first < n; first += AT_ONCE) {
        const size_t m = PST_MIN(n - first, (size_t)AT_ONCE);

        for (size_t i = 0; status == PST_OK && i < m; i++)
            status = start_process(&at[first + i], &agent, command, quoted.text,
                                   diag);
        wait_all(at + first, m,
                 status == PST_OK ? pst_now_ms() + 1000ull * seconds : 0);
    }
    pst_str_fini(&quoted);
    return status;
}

struct pstctl_remote *pstctl_remote_new(const struct pstctl_hosts *hosts)
{
    struct pstctl_remote *at = pst_calloc(
        PST_TAG_CLIENT, PST_MAX(hosts->list.n, (size_t)1), sizeof(*at));

    for (size_t i = 0; at != NULL && i < hosts->list.n; i++)
        at[i] = (struct pstctl_remote){.host = &hosts->list.at[i], .fd = -1};
    return at;
}

void pstctl_remote_free(struct pstctl_remote *at, size_t n)
{
    for (size_t i = 0; at != NULL && i < n; i++)
        pst_str_fini(&at[i].out);
    pst_free(at);
}
