// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/socket.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "stages/base/host/fs.h"

#define CONNECT_S 1 /* while all places to wait are taken */

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) ==
                   PSTD_SOCKET_PATH + 1,
               "size of a socket's address");

void pstd_socket_base(struct pst_str *out)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0)
        pst_str_addf(out, "%s/penstock", runtime);
    else
        pst_str_addf(out, "/tmp/penstock-%u", (unsigned)geteuid());
}

#define LONGEST_JOB 40 /* bytes: paths of sockets are short */

void pstd_socket_job(const char *text, struct pst_str *out)
{
    size_t n = 0;

    for (const char *p = text; *p != '\0' && n < LONGEST_JOB; p++) {
        const char c =
            isalnum((unsigned char)*p) || strchr("._-", *p) != NULL ? *p : '_';

        if (n == 0 && c == '.')
            continue;
        pst_str_addn(out, &c, 1);
        n++;
    }
    if (n == 0)
        pst_str_add(out, "job");
}

enum pst_status pstd_socket_check_job(const char *name, struct pst_diag *diag)
{
    struct pst_str kept = {0};
    enum pst_status status = PST_OK;

    if (name == NULL)
        return PST_OK;
    pstd_socket_job(name, &kept);
    if (kept.failed)
        status = pst_diag_nomem(diag, kept.len);
    else if (strcmp(kept.text, name) != 0)
        status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "--job \"%.80s\": a name has 1 to %d letters, "
                              "digits, \".\", \"_\" and \"-\", and no \".\" in "
                              "front",
                              name, LONGEST_JOB);
    pst_str_fini(&kept);
    return status;
}

enum pst_status pstd_socket_check(const char *path, struct pst_diag *diag)
{
    const size_t len = strlen(path);

    if (len == 0)
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "the socket path is empty");
    if (len > PSTD_SOCKET_PATH)
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "the socket path has %zu bytes, the system takes "
                            "%d: %s (choose a shorter one with --socket)",
                            len, PSTD_SOCKET_PATH, path);
    return PST_OK;
}

enum pst_status pstd_socket_path(const char *job, unsigned rank,
                                 struct pst_str *out, struct pst_diag *diag)
{
    pstd_socket_base(out);
    pst_str_addf(out, "/%s/rank%u.sock", job, rank);
    if (out->failed)
        return pst_diag_nomem(diag, out->len);
    return pstd_socket_check(out->text, diag);
}

/* Folder of a path, without the last '/'. */
static void parent(const char *path, struct pst_str *out)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        pst_str_add(out, ".");
    else
        pst_str_addn(out, path, slash == path ? 1 : (size_t)(slash - path));
}

static bool is_trusted(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

/* Somebody else's folder, a link or one open to others: its owner could put
 * a socket of his own in our place. */
static enum pst_status check_own(const char *dir, struct pst_diag *diag)
{
    struct stat st;

    if (lstat(dir, &st) != 0)
        return pst_diag_errno(diag, errno, "cannot look at %s", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                            "%s is no folder of ours; remove it or choose a "
                            "place with --socket",
                            dir);
    if ((st.st_mode & 077) != 0)
        return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                            "%s is open to others (mode %03o); make it 0700",
                            dir, st.st_mode & 0777u);
    return PST_OK;
}

/* Who can put a socket there could answer in the place of our job. */
static enum pst_status check_folder(const char *dir, bool closed,
                                    struct pst_diag *diag)
{
    const char *why = NULL;
    struct stat st;

    if (lstat(dir, &st) != 0)
        return PST_OK; /* nobody listens there: connect says so */
    if (S_ISLNK(st.st_mode))
        why = "is a link";
    else if (!S_ISDIR(st.st_mode))
        return PST_OK;
    else if (!is_trusted(st.st_uid))
        why = "is neither yours nor root's";
    else if (closed && (st.st_mode & 077) != 0)
        why = "is open to others; make its mode 0700";
    else if ((st.st_mode & 022) != 0 && !(st.st_mode & S_ISVTX))
        why = "can be written by others; take that right away from them";
    if (why == NULL)
        return PST_OK;
    return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                        "the folder %s of the socket %s "
                        "(mode %04o, user %u), so somebody else could answer",
                        dir, why, st.st_mode & 07777u, (unsigned)st.st_uid);
}

/* Folders of ours are closed; one that was chosen must at least not be in
 * others' hands. */
static enum pst_status check_folders(const char *path, struct pst_diag *diag)
{
    struct pst_str base = {0}, dir = {0}, below = {0};
    enum pst_status status = PST_OK;
    bool own;

    pstd_socket_base(&base);
    parent(path, &dir);
    parent(pst_str_text(&dir), &below);
    own = strcmp(pst_str_text(&below), pst_str_text(&base)) == 0;
    if (base.failed || dir.failed || below.failed)
        status = pst_diag_nomem(diag, dir.len);
    if (status == PST_OK && own)
        status = check_folder(base.text, true, diag);
    if (status == PST_OK)
        status = check_folder(dir.text, own, diag);
    pst_str_fini(&base);
    pst_str_fini(&dir);
    pst_str_fini(&below);
    return status;
}

enum pst_status pstd_socket_dirs(const char *path, bool own_dir,
                                 struct pst_diag *diag)
{
    struct pst_str dir = {0}, base = {0};
    enum pst_status status;

    parent(path, &dir);
    if (own_dir)
        parent(pst_str_text(&dir), &base);
    if (dir.failed || base.failed)
        status = pst_diag_nomem(diag, dir.len);
    else
        status = pst_mkdirs(dir.text, 0700, diag);
    if (status == PST_OK && own_dir)
        status = check_own(base.text, diag);
    if (status == PST_OK && own_dir)
        status = check_own(dir.text, diag);
    else if (status == PST_OK) /* nobody would connect */
        status = check_folders(path, diag);
    pst_str_fini(&dir);
    pst_str_fini(&base);
    return status;
}

/* The lock file may be removed by its last owner between our open and our
 * lock: what we locked must still be what the name means. */
static bool is_current(int fd, const char *path)
{
    struct stat ours, named;

    return fstat(fd, &ours) == 0 && stat(path, &named) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static enum pst_status take_lock(const char *lock, const char *path, int *ret,
                                 struct pst_diag *diag)
{
    for (unsigned attempt = 0; attempt < 16; attempt++) {
        const int fd =
            open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0)
            return pst_diag_errno(diag, errno, "cannot open %s", lock);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            const int err = errno;

            (void)close(fd);
            if (err == EWOULDBLOCK)
                return pst_diag_set(diag, PST_E_SOCKET_IN_USE,
                                    "the socket %s is in use by another "
                                    "penstockd (choose another with --job or "
                                    "--socket)",
                                    path);
            return pst_diag_errno(diag, err, "cannot lock %s", lock);
        }
        if (is_current(fd, lock)) {
            *ret = fd;
            return PST_OK;
        }
        (void)close(fd);
    }
    return pst_diag_set(diag, PST_E_SOCKET_IN_USE, "cannot lock %s", lock);
}

static void set_address(struct sockaddr_un *address, const char *path)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path));
}

/* Under our lock, a socket at this path is nobody's any more. */
static enum pst_status bind_socket(const char *path, int *ret,
                                   struct pst_diag *diag)
{
    struct sockaddr_un address;
    struct stat st;
    mode_t mask;
    int fd, err;

    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return pst_diag_set(diag, PST_E_SOCKET_PATH,
                                "%s exists and is no socket", path);
        (void)unlink(path);
    }
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

enum pst_status pstd_socket_bind(const char *path, bool own_dir,
                                 struct pstd_listener *ret,
                                 struct pst_diag *diag)
{
    struct pstd_listener l = {.fd = -1, .lock_fd = -1, .own_dir = own_dir};
    struct pst_str lock = {0};
    enum pst_status status = pstd_socket_check(path, diag);

    if (status != PST_OK)
        return status;
    pst_str_addf(&lock, "%s.lock", path);
    l.lock = lock.text;
    l.path = pst_strdup(PST_TAG_DAEMON, path);
    if (lock.failed || l.path == NULL)
        status = pst_diag_nomem(diag, strlen(path));
    if (status == PST_OK)
        status = pstd_socket_dirs(path, own_dir, diag);
    if (status == PST_OK)
        status = take_lock(l.lock, path, &l.lock_fd, diag);
    if (status == PST_OK)
        status = bind_socket(path, &l.fd, diag);
    if (status == PST_OK) {
        *ret = l;
        return PST_OK;
    }
    if (l.lock_fd >= 0) {
        (void)unlink(l.lock);
        (void)close(l.lock_fd);
    }
    pst_free(l.lock);
    pst_free(l.path);
    return status;
}

void pstd_socket_unbind(struct pstd_listener *listener)
{
    struct pst_str dir = {0};

    if (listener->path == NULL)
        return;
    if (listener->fd >= 0)
        (void)close(listener->fd);
    (void)unlink(listener->path);
    (void)unlink(listener->lock);
    (void)close(listener->lock_fd);
    parent(listener->path, &dir);
    if (listener->own_dir && !dir.failed)
        (void)rmdir(dir.text); /* other ranks may still be in it */
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

    if (status == PST_OK && !is_trusted(uid))
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
    /* In a crowd each waits for his turn; who listens may be stopped, too. */
    const struct timeval patience = {.tv_sec = CONNECT_S}, none = {0};
    struct sockaddr_un address;
    enum pst_status status = pstd_socket_check(path, diag);
    int fd, err;

    if (status == PST_OK)
        status = check_folders(path, diag);
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

static bool answers(const char *path)
{
    int fd = -1;

    if (pstd_socket_connect(path, &fd, NULL) != PST_OK)
        return false;
    (void)close(fd);
    return true;
}

/* Whether a process has the file open: its number alone may be another's by
 * now. Nobody may look into one of somebody else. */
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

/* Asked without the lock, which would keep others from taking it. */
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
            is_trusted(st.st_uid) && pread(fd, text, sizeof(text) - 1, 0) > 0)
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
    status = check_folder(pst_str_text(&base), true, diag);
    dir = status == PST_OK ? opendir(pst_str_text(&base)) : NULL;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct pst_str path = {0};

        if (entry->d_name[0] == '.')
            continue;
        pst_str_addf(&path, "%s/%s/rank0.sock", pst_str_text(&base),
                     entry->d_name);
        if (!path.failed &&
            (answers(path.text) || pstd_socket_owner(path.text) > 0)) {
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
