// SPDX-License-Identifier: Apache-2.0
/* Preloaded before the C library: makes the calls fail that PLANT names. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int planted(const char *name)
{
    const char *plant = getenv("PLANT"); // NOLINT(concurrency-mt-unsafe)

    return plant != NULL && strcmp(plant, name) == 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    const long status = syscall(SYS_clock_gettime, clock, ret);

    if (status == 0 && clock == CLOCK_REALTIME && planted("clock"))
        ret->tv_sec += 5;
    return (int)status;
}

int statvfs(const char *path, struct statvfs *ret)
{
    (void)path;
    memset(ret, 0, sizeof(*ret));
    ret->f_frsize = 4096;
    ret->f_bavail = planted("space") ? 10 : 10000000;
    ret->f_files = 1000000;
    ret->f_favail = planted("files") ? 3 : 1000000;
    return 0;
}

int fsync(int fd)
{
    (void)fd;
    if (!planted("sync"))
        return 0;
    errno = EIO;
    return -1;
}

int flock(int fd, int how)
{
    if (!planted("locks"))
        return (int)syscall(SYS_flock, fd, how);
    errno = ENOLCK;
    return -1;
}

/* Ignores SIGKILL, as for a process that waits for a disk. */
int kill(pid_t pid, int number)
{
    if (number == SIGKILL && planted("kill"))
        return 0;
    return (int)syscall(SYS_kill, pid, number);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *here,
                         unsigned long n_here, const struct iovec *there,
                         unsigned long n_there, unsigned long flags)
{
    if (!planted("copies"))
        return syscall(SYS_process_vm_readv, pid, here, n_here, there, n_there,
                       flags);
    errno = EPERM;
    return -1;
}

int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **ret)
{
    (void)node;
    (void)service;
    (void)hints;
    *ret = NULL;
    return planted("host") ? EAI_NONAME : 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    (void)list;
}
