// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/control/paths.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#define TRIES 64 /* maximum attempts of pstd_lock_file */
/* seconds to wait for the lock of BASE: its holder may be stopped (SIGSTOP) */
#define BASE_S 2.0

bool pstd_lock_is_current(int fd, const char *path)
{
    struct stat ours, named;

    return fd >= 0 && fstat(fd, &ours) == 0 && lstat(path, &named) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

/* Opens BASE. The folder itself is locked: a lock file in it could be removed
 * by a program that cleans /tmp. */
static int open_base(const char *path)
{
    struct pst_diag ignored;
    struct stat st;
    int fd;

    if (pst_mkdirs(path, 0700, &ignored) != PST_OK)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid())
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

int pstd_lock_base(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const double until = pst_now() + BASE_S;
    struct pst_str base = {0};
    int ret = -1;

    pstd_socket_base(&base);
    while (!base.failed) {
        const int fd = open_base(base.text);
        const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
        const bool later = locked || (fd >= 0 && errno == EWOULDBLOCK);

        if (locked && pstd_lock_is_current(fd, base.text))
            ret = fd;
        else if (fd >= 0)
            (void)close(fd);
        /* Retries only while another process holds the lock, or if BASE was
         * replaced. Other errors last: no locks on this file system, or BASE is
         * not ours. */
        if (ret >= 0 || !later || pst_now() > until)
            break;
        (void)nanosleep(&pause, NULL);
    }
    pst_str_fini(&base);
    return ret;
}

void pstd_unlock_base(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* True if the file is a lock of a job: empty, or with the record of `penstock
 * run`. Beside a --socket path, other programs may have such a file. */
static bool is_lock(int fd)
{
    char text[PSTD_LOCK_RECORD];
    struct stat st;
    const ssize_t n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
                          ? pread(fd, text, sizeof(text), 0)
                          : -1;
    bool ret = n == 0 || (n == sizeof(text) && text[n - 1] == '\n');

    for (ssize_t i = 0; i < n - 1 && ret; i++)
        ret = text[i] == ' ' || (text[i] >= '0' && text[i] <= '9');
    return ret;
}

bool pstd_lock_exists(const char *socket, const char *end)
{
    struct pst_str path = {0};
    int fd = -1;
    bool ret;

    pst_str_addf(&path, "%s%s", socket, end);
    if (!path.failed)
        fd = open(path.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ret = fd >= 0 && is_lock(fd);
    if (fd >= 0)
        (void)close(fd);
    pst_str_fini(&path);
    return ret;
}

static enum pst_status try_lock(const char *path, int *ret,
                                struct pst_diag *diag)
{
    const int fd = open(
        path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    int err;

    if (fd < 0)
        return pst_diag_errno(diag, errno, "cannot open %s", path);
    if (!is_lock(fd)) {
        (void)close(fd);
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "%s exists and is not a lock of a job; choose "
                            "another path with --socket",
                            path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (pstd_lock_is_current(fd, path)) {
            *ret = fd;
            return PST_OK;
        }
        /* The previous owner removed the file before this process had locked
         * it. */
        (void)close(fd);
        return pst_diag_set(diag, PST_E_SOCKET_IN_USE,
                            "cannot lock %s: others make and remove it all the "
                            "time; try again",
                            path);
    }
    err = errno;
    (void)close(fd);
    return err == EWOULDBLOCK
               ? PST_AGAIN
               : pst_diag_errno(diag, err, "cannot lock %s", path);
}

/* True if trying again may help: the folder was removed after it was created,
 * or the file after it was opened. */
static bool may_retry(const struct pst_diag *why)
{
    return why->error == PST_E_FILE_MISSING ||
           why->error == PST_E_SOCKET_IN_USE;
}

enum pst_status pstd_lock_file(int base, const char *socket, const char *end,
                               bool own_dir, int *ret, struct pst_diag *diag)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct pst_str path = {0};
    struct pst_diag why;
    enum pst_status status = PST_OK;

    pst_str_addf(&path, "%s%s", socket, end);
    if (path.failed)
        return pst_diag_nomem(diag, path.len);
    for (unsigned i = 0; i < TRIES; i++) {
        pst_diag_init(&why);
        status = pstd_socket_dirs(socket, own_dir, &why);
        if (status == PST_OK)
            status = try_lock(path.text, ret, &why);
        if (status == PST_AGAIN && base < 0)
            (void)nanosleep(&pause, NULL);
        else if (status >= 0 || !may_retry(&why))
            break;
    }
    pst_str_fini(&path);
    return status < 0 ? pst_diag_pass(diag, &why, "%s", why.text) : status;
}
