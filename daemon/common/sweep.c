// SPDX-License-Identifier: Apache-2.0
/* Removes files that killed jobs have left beside their sockets. Holds the lock
 * of BASE meanwhile, since a folder or file that is just being created has no
 * lock yet. */
#include "daemon/common/control/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "daemon/common/control/paths.h"

#define RANK   "rank"
#define SOCKET ".sock"

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* Locks a file and returns its descriptor. -1: it is missing, not ours, or
 * locked by another process. */
static int lock_if_free(int dir, const char *name)
{
    const int fd =
        openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* True if the lock is held, or cannot be taken for another reason. */
static bool is_locked(int dir, const char *name)
{
    const int fd = lock_if_free(dir, name);

    if (fd >= 0)
        (void)close(fd);
    return fd < 0 && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* True if a process still listens: a program that cleans /tmp may have removed
 * only its lock. */
static bool has_listener(int dir, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int n = snprintf(address.sun_path, sizeof(address.sun_path),
                           "/proc/self/fd/%d/%s", dir, name);
    int fd;
    bool heard;

    if (n < 0 || (size_t)n >= sizeof(address.sun_path))
        return true;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    heard = fd < 0 ||
            connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
            errno != ECONNREFUSED;
    if (fd >= 0)
        (void)close(fd);
    return heard;
}

static bool is_removable(int dir, const char *name)
{
    char lock[NAME_MAX + sizeof(PSTD_SOCKET_LOCK)];
    struct stat st;

    if (ends_with(name, SOCKET PSTD_SOCKET_LOCK) ||
        ends_with(name, SOCKET PSTD_SOCKET_OWNER))
        return !is_locked(dir, name);
    (void)snprintf(lock, sizeof(lock), "%s" PSTD_SOCKET_LOCK, name);
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
           !S_ISSOCK(st.st_mode) || faccessat(dir, lock, F_OK, 0) == 0 ||
           !has_listener(dir, name);
}

/* Calls fn for each file of a rank, until fn returns false. False: fn has
 * returned false, or the folder cannot be read. */
static bool for_each_file(int fd, bool (*fn)(int dir, const char *name))
{
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *e;
    bool all = dir != NULL;

    if (dir == NULL && copy >= 0)
        (void)close(copy);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (all && (e = readdir(dir)) != NULL)
        if (strncmp(e->d_name, RANK, strlen(RANK)) == 0)
            all = fn(fd, e->d_name);
    if (dir != NULL)
        (void)closedir(dir);
    return all;
}

static bool remove_file(int dir, const char *name)
{
    (void)unlinkat(dir, name, 0); /* if it fails, the next sweep tries again */
    return true;
}

/* Removes files of a rank that was killed alone, while others use the
 * folder. */
static bool remove_rank(int dir, const char *name)
{
    char socket[NAME_MAX + 1] = "";

    if (!ends_with(name, SOCKET PSTD_SOCKET_LOCK) || is_locked(dir, name))
        return true;
    memcpy(socket, name, strlen(name) - strlen(PSTD_SOCKET_LOCK));
    (void)unlinkat(dir, socket, 0);
    return remove_file(dir, name);
}

/* Sweeps the folder of a job. Keeps everything while `penstock run` or one of
 * its ranks holds the lock; otherwise removes files of ranks that have ended.
 */
static void sweep_folder(int base, const char *name)
{
    const int dir = pstd_open_own_folder(base, name);

    if (dir < 0)
        return;
    if (for_each_file(dir, is_removable))
        (void)for_each_file(dir, remove_file);
    else if (!is_locked(dir, RANK "0" SOCKET PSTD_SOCKET_OWNER))
        (void)for_each_file(dir, remove_rank);
    (void)close(dir);
    (void)unlinkat(base, name,
                   AT_REMOVEDIR); /* succeeds only if it is empty now */
}

void pstd_socket_sweep_job(int base, const char *socket)
{
    const char *end = strrchr(socket, '/'), *name = end;
    char job[NAME_MAX + 1] = "";

    while (name != NULL && name > socket && name[-1] != '/')
        name--;
    if (end == NULL || name == end || (size_t)(end - name) >= sizeof(job))
        return;
    memcpy(job, name, (size_t)(end - name));
    sweep_folder(base, job);
}

void pstd_socket_sweep(void)
{
    struct pst_str path = {0};
    const struct dirent *e;
    DIR *dir;
    int base = -1;

    pstd_socket_base(&path);
    if (!path.failed && access(path.text, F_OK) == 0)
        base = pstd_lock_base();
    pst_str_fini(&path);
    dir = base >= 0 ? fdopendir(base) : NULL;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            sweep_folder(base, e->d_name);
    if (dir != NULL)
        (void)closedir(dir);
    else
        pstd_unlock_base(base);
}
