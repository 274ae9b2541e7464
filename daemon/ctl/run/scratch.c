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
#include <unistd.h>

#include "stages/base/host/fs.h"

#define PREFIX "penstock-"
#define OWNER  "owner"
#define BEGIN  "owner.new" /* not locked yet: nobody sweeps it */

/* The lock has its name only when it is locked. */
static enum pst_status lock_new(const char *path, int *ret,
                                struct pst_diag *diag)
{
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = -1;

    if (dir >= 0)
        fd = openat(dir, BEGIN, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ||
        renameat(dir, BEGIN, dir, OWNER) != 0) {
        const int err = errno;

        if (fd >= 0)
            (void)close(fd);
        if (dir >= 0)
            (void)close(dir);
        return pst_diag_errno(diag, err, "cannot lock %s", path);
    }
    (void)close(dir);
    *ret = fd;
    return PST_OK;
}

enum pst_status pstctl_scratch_make(const char *base,
                                    struct pstctl_scratch *ret,
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
        status = lock_new(s.path.text, &s.fd, diag);
    if (status != PST_OK) {
        (void)rmdir(s.path.text);
        pst_str_fini(&s.path);
        return status;
    }
    *ret = s;
    return PST_OK;
}

enum pst_status pstctl_scratch_remove(struct pstctl_scratch *s,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->fd >= 0)
        status = pst_remove_tree(s->path.text, diag);
    pstctl_scratch_leave(s);
    return status;
}

void pstctl_scratch_leave(struct pstctl_scratch *s)
{
    if (s->fd >= 0)
        (void)close(s->fd);
    s->fd = -1;
    pst_str_fini(&s->path);
}

/* Open and locked, if it is ours and nobody holds it; else -1. */
static int take_free(int base, const char *name)
{
    struct stat st;
    int dir = -1, fd = -1;

    if (fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return -1;
    dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return -1;
    fd = openat(dir, OWNER, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    (void)close(dir);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

void pstctl_scratch_sweep(const char *base)
{
    DIR *dir = opendir(base);
    const struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        struct pst_str path = {0};
        int fd;

        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            strlen(e->d_name) != strlen(PREFIX) + 6)
            continue;
        fd = take_free(dirfd(dir), e->d_name);
        if (fd < 0)
            continue;
        pst_str_addf(&path, "%s/%s", base, e->d_name);
        /* What cannot be removed now is tried again by the next one. */
        if (!path.failed && pst_remove_tree(path.text, NULL) != PST_OK)
            errno = 0;
        pst_str_fini(&path);
        (void)close(fd);
    }
    if (dir != NULL)
        (void)closedir(dir);
}
