// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "stages/base/alloc.h"

/* seconds in which a connection must be made if the listen queue is full */
#define CONNECT_S 1
/* Longest pause between attempts; each pause is twice the previous one. */
#define MAX_PAUSE_MS 512

static void set_address(struct sockaddr_un *address, const char *path)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path));
}

/* True if a process listens at the socket, even one that holds no lock because
 * it is not a penstockd. */
static bool has_listener(const char *path)
{
    const int fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    bool heard;

    set_address(&address, path);
    heard = fd < 0 ||
            connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
            (errno != ECONNREFUSED && errno != ENOENT);
    if (fd >= 0)
        (void)close(fd);
    return heard;
}

/* Removes a socket at which no process listens. Waits up to 1 s for its
 * listener to end, since a killed rank loses its lock just before its
 * socket. */
static enum pst_status remove_stale(const char *path, struct pst_diag *diag)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return PST_OK;
    if (!S_ISSOCK(st.st_mode))
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "%s exists and is not a socket", path);
    for (unsigned ms = 1; has_listener(path); ms *= 2) {
        if (ms > MAX_PAUSE_MS)
            return pst_diag_set(diag, PST_E_SOCKET_IN_USE,
                                "the socket %s is in use by another program "
                                "(choose another with --job or --socket)",
                                path);
        (void)usleep(1000 * ms);
    }
    (void)unlink(path);
    return PST_OK;
}

/* Binds the socket. The caller holds its lock. */
static enum pst_status bind_socket(const char *path, int *ret,
                                   struct pst_diag *diag)
{
    struct sockaddr_un address;
    mode_t mask;
    int fd, err;
    enum pst_status status = remove_stale(path, diag);

    if (status != PST_OK)
        return status;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return pst_diag_errno(diag, errno, "cannot make a socket");
    set_address(&address, path);
    mask = umask(0177);
    err =
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ? errno : 0;
    (void)umask(mask);
    if (err != 0) {
        (void)close(fd);
        return pst_diag_errno(diag, err, "cannot bind the socket %s", path);
    }
    *ret = fd;
    return PST_OK;
}

static enum pst_status lock_and_bind(struct pstd_listener *l, int base,
                                     struct pst_diag *diag)
{
    enum pst_status status = pstd_lock_file(base, l->path, PSTD_SOCKET_LOCK,
                                            l->own_dir, &l->lock_fd, diag);

    if (status == PST_AGAIN)
        return pst_diag_set(diag, PST_E_SOCKET_IN_USE,
                            "the socket %s is in use by another penstockd "
                            "(choose another with --job or --socket)",
                            l->path);
    if (status == PST_OK)
        status = bind_socket(l->path, &l->fd, diag);
    if (status != PST_OK && l->lock_fd >= 0) {
        (void)unlink(l->lock);
        (void)close(l->lock_fd);
    }
    return status;
}

enum pst_status pstd_socket_bind(const char *path, bool own_dir,
                                 struct pstd_listener *ret,
                                 struct pst_diag *diag)
{
    struct pstd_listener l = {.fd = -1, .lock_fd = -1, .own_dir = own_dir};
    struct pst_str lock = {0};
    enum pst_status status = pstd_socket_check(path, diag);

    if (status != PST_OK)
        return status;
    pst_str_addf(&lock, "%s" PSTD_SOCKET_LOCK, path);
    l.lock = lock.text;
    l.path = pst_strdup(PST_TAG_DAEMON, path);
    if (lock.failed || l.path == NULL)
        status = pst_diag_nomem(diag, strlen(path));
    if (status == PST_OK) {
        const int base = own_dir ? pstd_lock_base() : -1;

        status = lock_and_bind(&l, base, diag);
        pstd_unlock_base(base);
    }
    if (status == PST_OK) {
        *ret = l;
        return PST_OK;
    }
    pst_free(l.lock);
    pst_free(l.path);
    return status;
}

void pstd_socket_unbind(struct pstd_listener *listener)
{
    struct pst_str dir = {0};
    int base;

    if (listener->path == NULL)
        return;
    base = listener->own_dir ? pstd_lock_base() : -1;
    if (listener->fd >= 0)
        (void)close(listener->fd);
    /* If the folder was removed, another job may own these names now. */
    if (pstd_lock_is_current(listener->lock_fd, listener->lock)) {
        (void)unlink(listener->path);
        (void)unlink(listener->lock);
    }
    (void)close(listener->lock_fd);
    pstd_socket_folder(listener->path, &dir);
    if (base >= 0 && !dir.failed)
        (void)rmdir(dir.text); /* fails if other ranks still use it */
    pstd_unlock_base(base);
    pst_str_fini(&dir);
    pst_free(listener->path);
    pst_free(listener->lock);
    listener->path = listener->lock = NULL;
    listener->fd = listener->lock_fd = -1;
}

enum pst_status pstd_socket_peer(int fd, unsigned *ret_uid, int *ret_pid,
                                 struct pst_diag *diag)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return pst_diag_errno(diag, errno, "cannot see who is calling");
    *ret_uid = peer.uid;
    *ret_pid = peer.pid;
    return PST_OK;
}

static enum pst_status check_peer(int fd, const char *path,
                                  struct pst_diag *diag)
{
    unsigned uid = 0;
    int pid = 0;
    enum pst_status status = pstd_socket_peer(fd, &uid, &pid, diag);

    if (status == PST_OK && !pstd_socket_is_trusted(uid))
        status = pst_diag_set(diag, PST_E_SOCKET_OTHER_USER,
                              "process %d of user %u listens at %s: only your "
                              "own jobs and root's are spoken to; run this as "
                              "that user",
                              pid, uid, path);
    return status;
}

enum pst_status pstd_socket_connect(const char *path, int *ret_fd,
                                    struct pst_diag *diag)
{
    /* Limits the wait if the listen queue is full, for instance because the
     * listener is stopped. */
    const struct timeval patience = {.tv_sec = CONNECT_S}, none = {0};
    struct sockaddr_un address;
    enum pst_status status = pstd_socket_check(path, diag);
    int fd, err;

    if (status == PST_OK)
        status = pstd_socket_check_folders(path, diag);
    if (status != PST_OK)
        return status;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return pst_diag_errno(diag, errno, "cannot make a socket");
    set_address(&address, path);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        status = check_peer(fd, path, diag);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
        if (status == PST_OK)
            *ret_fd = fd;
        else
            (void)close(fd);
        return status;
    }
    err = errno;
    (void)close(fd);
    if (err == EAGAIN)
        return pst_diag_set(diag, PST_E_JOB_SILENT,
                            "penstockd at %s takes no connections: it may be "
                            "stopped; try again when it runs",
                            path);
    if (err == EACCES || err == EPERM)
        return pst_diag_set(diag, PST_E_SOCKET_OTHER_USER,
                            "the socket %s is another user's", path);
    if (err == ENOENT || err == ECONNREFUSED || err == ENOTDIR)
        return pst_diag_set(diag, PST_E_JOB_NONE, "no penstockd listens at %s",
                            path);
    return pst_diag_errno(diag, err, "cannot connect to %s", path);
}

bool pstd_socket_answers(const char *path)
{
    int fd = -1;

    if (pstd_socket_connect(path, &fd, NULL) != PST_OK)
        return false;
    (void)close(fd);
    return true;
}

/* True if the process has the file open: its pid alone may belong to another
 * process by now. Processes of other users cannot be examined. */
static bool has_open(int pid, const struct stat *file)
{
    char path[32];
    const struct dirent *entry;
    bool found = false;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    dir = opendir(path);
    if (dir == NULL)
        return errno == EACCES || errno == EPERM;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (!found && (entry = readdir(dir)) != NULL) {
        struct stat st;

        found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 &&
                st.st_ino == file->st_ino && st.st_dev == file->st_dev;
    }
    (void)closedir(dir);
    return found;
}

/* Does not try to lock the file: that would briefly keep other processes from
 * locking it. */
int pstd_socket_owner(const char *socket)
{
    struct pst_str path = {0};
    struct stat st;
    char text[64] = "";
    int client = 0, fd;

    pst_str_addf(&path, "%s" PSTD_SOCKET_OWNER, socket);
    fd = path.failed
             ? -1
             : open(path.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            pstd_socket_is_trusted(st.st_uid) &&
            pread(fd, text, sizeof(text) - 1, 0) > 0)
            (void)sscanf(text, "%d", &client); // NOLINT(cert-err34-c)
        if (client <= 0 || !has_open(client, &st))
            client = 0;
        (void)close(fd);
    }
    pst_str_fini(&path);
    return client;
}

enum pst_status pstd_socket_find(struct pst_str *out, struct pst_diag *diag)
{
    struct pst_str base = {0}, names = {0};
    enum pst_status status = PST_OK;
    const struct dirent *entry;
    unsigned n = 0;
    DIR *dir;

    pstd_socket_base(&base);
    status = pstd_socket_check_base(pst_str_text(&base), diag);
    dir = status == PST_OK ? opendir(pst_str_text(&base)) : NULL;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct pst_str path = {0};

        if (entry->d_name[0] == '.')
            continue;
        pst_str_addf(&path, "%s/%s/rank0.sock", pst_str_text(&base),
                     entry->d_name);
        if (!path.failed && (pstd_socket_answers(path.text) ||
                             pstd_socket_owner(path.text) > 0)) {
            pst_str_addf(&names, "%s%s", n > 0 ? ", " : "", entry->d_name);
            if (n++ == 0)
                pst_str_add(out, path.text);
        }
        pst_str_fini(&path);
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (status == PST_OK && n == 0)
        status = pst_diag_set(diag, PST_E_JOB_NONE,
                              "no job is running here (looked into %s)",
                              pst_str_text(&base));
    else if (n > 1)
        status = pst_diag_set(diag, PST_E_SOCKET_CHOOSE,
                              "several jobs are running, choose one with "
                              "--job: %s",
                              pst_str_text(&names));
    pst_str_fini(&base);
    pst_str_fini(&names);
    return status;
}
