// SPDX-License-Identifier: Apache-2.0
/* What jobs that were killed have left beside their sockets. */
#include "daemon/common/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOCKET ".sock"
#define LOCK   ".sock.lock"

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* A file of ours that nobody has locked; now we have. -1: it is none. */
static int take_free(int dir, const char *name)
{
    const int fd =
        openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st, named;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        named.st_ino == st.st_ino && named.st_dev == st.st_dev)
        return fd;
    (void)close(fd);
    return -1;
}

/* Of ranks: the socket, then the lock, which is held so long. */
static bool sweep_ranks(int fd)
{
    const int copy = dup(fd);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *e;
    bool any = false;

    if (dir == NULL && copy >= 0)
        (void)close(copy);
    if (dir != NULL)
        rewinddir(dir);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char socket[sizeof(e->d_name)] = "";
        int lock;

        if (strncmp(e->d_name, "rank", 4) != 0 || !ends_with(e->d_name, LOCK))
            continue;
        lock = take_free(fd, e->d_name);
        if (lock < 0)
            continue;
        memcpy(socket, e->d_name,
               strlen(e->d_name) - strlen(LOCK) + strlen(SOCKET));
        (void)unlinkat(fd, socket, 0);
        (void)unlinkat(fd, e->d_name, 0);
        (void)close(lock);
        any = true;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return any;
}

static int open_folder(int base, const char *name)
{
    struct stat st;

    if (fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return -1;
    return openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void pstd_socket_sweep_ranks(const char *dir)
{
    const int fd = open_folder(AT_FDCWD, dir);

    if (fd < 0)
        return;
    (void)sweep_ranks(fd);
    (void)close(fd);
    (void)rmdir(dir); /* others' sockets may be there */
}

/* Of `penstock run`, whose lock its ranks hold, too. */
static void sweep_job(int base, const char *name)
{
    static const char *const files[] = {PSTD_SOCKET_OUTPUT, PSTD_SOCKET_RESULT,
                                        PSTD_SOCKET_LAST, PSTD_SOCKET_OWNER};
    const int dir = open_folder(base, name);
    int owner;
    bool any;

    if (dir < 0)
        return;
    owner = take_free(dir, "rank0" SOCKET PSTD_SOCKET_OWNER);
    any = owner >= 0;
    if (any || faccessat(dir, "rank0" SOCKET PSTD_SOCKET_OWNER, F_OK, 0) != 0)
        any |= sweep_ranks(dir);
    for (size_t i = 0; owner >= 0 && i < PST_COUNT(files); i++) {
        struct pst_str file = {0};

        pst_str_addf(&file, "rank0" SOCKET "%s", files[i]);
        if (!file.failed)
            (void)unlinkat(dir, file.text, 0);
        pst_str_fini(&file);
    }
    if (owner >= 0)
        (void)close(owner);
    (void)close(dir);
    if (any) /* an empty one may be just made */
        (void)unlinkat(base, name, AT_REMOVEDIR);
}

void pstd_socket_sweep(void)
{
    struct pst_str base = {0};
    const struct dirent *e;
    struct stat st;
    DIR *dir = NULL;

    pstd_socket_base(&base);
    if (!base.failed && lstat(base.text, &st) == 0 && S_ISDIR(st.st_mode) &&
        st.st_uid == geteuid())
        dir = opendir(base.text);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            sweep_job(dirfd(dir), e->d_name);
    if (dir != NULL)
        (void)closedir(dir);
    pst_str_fini(&base);
}
