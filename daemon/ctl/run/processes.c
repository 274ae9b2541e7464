// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FREEZE_MS 100 /* time that a process has to stop after SIGSTOP */

struct process {
    pid_t pid, parent, session;
    char state; /* 'T': stopped, 'Z': ended */
};

/* Parses "123 (name) S PARENT GROUP SESSION ..."; false: the process has
 * gone. */
static bool read_process(const char *pid, struct process *ret)
{
    char path[64], text[512], *at;
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.10s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')');
    if (at == NULL || strlen(at) <= 4)
        return false;
    ret->pid = (pid_t)strtol(pid, NULL, 10);
    ret->state = at[2];
    ret->parent = (pid_t)strtol(at + 3, &at, 10);
    (void)strtol(at, &at, 10);
    ret->session = (pid_t)strtol(at, NULL, 10);
    return true;
}

/* Calls fn for each child of a process. */
static void for_each_child(pid_t parent,
                           void (*fn)(void *, const struct process *),
                           void *ctx)
{
    DIR *dir = opendir("/proc");
    const struct dirent *e;
    struct process p;

    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
            read_process(e->d_name, &p) && p.parent == parent)
            fn(ctx, &p);
    if (dir != NULL)
        (void)closedir(dir);
}

static void kill_child(void *ctx, const struct process *p)
{
    bool *found = ctx;

    (void)kill(p->pid, SIGKILL);
    *found = true;
}

bool pstctl_processes_kill_children(pid_t parent)
{
    bool found = false;

    for_each_child(parent, kill_child, &found);
    return found;
}

void pstctl_processes_freeze(pid_t pid)
{
    char name[16];
    struct process p;

    (void)snprintf(name, sizeof(name), "%d", (int)pid);
    (void)kill(pid, SIGSTOP);
    for (unsigned ms = 0; ms < FREEZE_MS; ms++) {
        if (!read_process(name, &p) || p.state == 'T' || p.state == 'Z')
            return;
        (void)usleep(1000);
    }
}

struct reaped {
    pid_t session, left;
};

static void reap_child(void *ctx, const struct process *p)
{
    struct reaped *r = ctx;

    if (p->session != r->session)
        return;
    (void)kill(p->pid, SIGKILL);
    r->left = p->pid;
    (void)waitpid(p->pid, NULL, WNOHANG);
}

pid_t pstctl_processes_reap(pid_t session)
{
    struct reaped r = {.session = session};

    if (session > 0)
        for_each_child(getpid(), reap_child, &r);
    return r.left;
}
