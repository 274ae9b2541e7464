// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/control/paths.h"
#include "stages/base/host/fs.h"

#define PREFIX "penstock-"
#define OWNER  "owner"
#define BEGIN  "owner.new" /* name of the lock file until it is locked */
/* Seconds after which a folder without a lock file counts as abandoned. */
#define HALF_S 600

#define BOOT "/proc/sys/kernel/random/boot_id"

/* Returns "HOST BOOT", which identifies this host since its last boot. Other
 * hosts may not see the locks of this host on a shared file system. */
static void name_host(char ret[512])
{
    const int fd = open(BOOT, O_RDONLY | O_CLOEXEC);
    char host[256] = "", boot[64] = "";

    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    if (fd >= 0) {
        const ssize_t n = read(fd, boot, sizeof(boot) - 1);

        boot[n > 0 ? n : 0] = '\0';
        (void)close(fd);
    }
    (void)snprintf(ret, 512, "%s %s", host, boot);
}

/* Creates the lock file under a temporary name, and renames it once it is
 * locked. */
static enum pst_status lock_new(struct pstctl_scratch *s, struct pst_diag *diag)
{
    char host[512];
    int fd;

    name_host(host);
    s->dir =
        open(s->path.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    fd = s->dir < 0 ? -1
                    : openat(s->dir, BEGIN,
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ||
        renameat(s->dir, BEGIN, s->dir, OWNER) != 0) {
        const int err = errno;

        if (fd >= 0)
            (void)close(fd);
        return pst_diag_errno(diag, err, "cannot lock %s", s->path.text);
    }
    if (write(fd, host, strlen(host)) < 0)
        errno = 0; /* an empty lock file counts as a file of this host */
    s->fd = fd;
    return PST_OK;
}

static enum pst_status make_folder(const char *base, struct pstctl_scratch *ret,
                                   struct pst_diag *diag)
{
    struct pstctl_scratch s = PSTCTL_SCRATCH_NONE;
    enum pst_status status = PST_OK;

    pst_str_addf(&s.path, "%s/" PREFIX "XXXXXX", base);
    if (s.path.failed)
        return pst_diag_nomem(diag, strlen(base));
    if (mkdtemp(s.path.text) == NULL)
        status =
            pst_diag_errno(diag, errno, "cannot make a folder %s", s.path.text);
    else
        status = lock_new(&s, diag);
    if (status == PST_OK) {
        *ret = s;
        return PST_OK;
    }
    if (s.dir >= 0)
        (void)unlinkat(s.dir, BEGIN, 0);
    (void)rmdir(s.path.text);
    pstctl_scratch_abandon(&s);
    return status;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
           a->st_uid == b->st_uid;
}

static bool has_name(const struct pstctl_scratch *s)
{
    struct stat ours, named;

    return s->dir >= 0 && fstat(s->dir, &ours) == 0 &&
           lstat(s->path.text, &named) == 0 && is_same(&ours, &named) &&
           ours.st_uid == geteuid();
}

bool pstctl_scratch_exists(const struct pstctl_scratch *s)
{
    struct stat lock, named;

    return has_name(s) && fstat(s->fd, &lock) == 0 &&
           fstatat(s->dir, OWNER, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           is_same(&lock, &named);
}

const char *pstctl_scratch_base(void)
{
    const char *base = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe)

    return base != NULL && *base != '\0' ? base : "/tmp";
}

enum pst_status pstctl_scratch_ensure(const char *base,
                                      struct pstctl_scratch *s, bool *ret_new,
                                      struct pst_diag *diag)
{
    struct pst_diag ignored;

    *ret_new = !pstctl_scratch_exists(s);
    if (!*ret_new)
        return PST_OK;
    /* Removes a folder whose lock file is gone, since pstctl_scratch_sweep
     * would not remove it. */
    if (has_name(s) && pstctl_scratch_remove(s, &ignored) != PST_OK)
        errno = 0;
    pstctl_scratch_abandon(s);
    return make_folder(base, s, diag);
}

enum pst_status pstctl_scratch_folder(const struct pstctl_scratch *s,
                                      const char *name, struct pst_str *ret,
                                      struct pst_diag *diag)
{
    enum pst_status status = pst_remove_at(s->dir, name, diag);

    if (status == PST_OK && mkdirat(s->dir, name, 0700) != 0)
        status = pst_diag_errno(diag, errno, "cannot make %s/%s", s->path.text,
                                name);
    pst_str_addf(ret, "%s/%s", s->path.text, name);
    if (status == PST_OK && ret->failed)
        status = pst_diag_nomem(diag, s->path.len);
    return status;
}

/* Removes the content of the folder, and the lock file last: if this is
 * interrupted, pstctl_scratch_sweep can still remove the folder. */
static enum pst_status clear_folder(int dir, struct pst_diag *diag)
{
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *e;
    enum pst_status status = PST_OK;

    if (entries == NULL) {
        const int err = errno;

        if (copy >= 0)
            (void)close(copy);
        return pst_diag_errno(diag, err, "cannot list a folder");
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (status == PST_OK && (e = readdir(entries)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, OWNER) != 0)
            status = pst_remove_at(dir, e->d_name, diag);
    (void)closedir(entries);
    if (status == PST_OK)
        status = pst_remove_at(dir, OWNER, diag);
    return status;
}

enum pst_status pstctl_scratch_remove(struct pstctl_scratch *s,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->dir >= 0)
        status = clear_folder(s->dir, diag);
    if (status == PST_OK && has_name(s) && rmdir(s->path.text) != 0)
        status = pst_diag_errno(diag, errno, "cannot remove %s", s->path.text);
    else if (status != PST_OK && diag != NULL)
        status =
            pst_diag_pass(diag, diag, "%s of %s", diag->text, s->path.text);
    pstctl_scratch_abandon(s);
    return status;
}

void pstctl_scratch_abandon(struct pstctl_scratch *s)
{
    if (s->fd >= 0)
        (void)close(s->fd);
    if (s->dir >= 0)
        (void)close(s->dir);
    s->fd = s->dir = -1;
    pst_str_fini(&s->path);
}

static bool is_of_this_host(int fd)
{
    char host[512], said[sizeof(host)] = "";
    const ssize_t n = pread(fd, said, sizeof(said) - 1, 0);
    size_t name;

    name_host(host);
    name = strcspn(host, " ") + 1;
    return n == 0 ||
           (n > 0 && (strncmp(said, host, name) == 0 ||
                      (host[name] != '\0' &&
                       strcmp(strchrnul(said, ' '), host + name - 1) == 0)));
}

/* Removes an old folder without a lock file. Its process was killed before it
 * had locked the file, so the folder contains at most the file BEGIN. */
static void remove_half(int base, int dir, const char *name)
{
    struct stat st;

    if (fstat(dir, &st) != 0 || (st.st_mode & 07777) != 0700 ||
        st.st_mtime > time(NULL) - HALF_S)
        return;
    (void)unlinkat(dir, BEGIN, 0);
    (void)unlinkat(base, name, AT_REMOVEDIR); /* succeeds only if it is empty */
}

static void sweep_folder(int base, const char *name)
{
    const int dir = pstd_open_own_folder(base, name);
    int fd;

    if (dir < 0)
        return;
    fd = openat(dir, OWNER, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        remove_half(base, dir, name);
    /* A folder that cannot be removed now is left to the next sweep. */
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_of_this_host(fd) &&
        clear_folder(dir, NULL) == PST_OK)
        (void)unlinkat(base, name, AT_REMOVEDIR);
    if (fd >= 0)
        (void)close(fd);
    (void)close(dir);
}

void pstctl_scratch_sweep(const char *base)
{
    DIR *dir = opendir(base);
    const struct dirent *e;

    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            strlen(e->d_name) == strlen(PREFIX) + 6)
            sweep_folder(dirfd(dir), e->d_name);
    if (dir != NULL)
        (void)closedir(dir);
}
