// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/fs.h"

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fault.h"
#include "stages/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for XXH3 state on the stack */
#include <xxhash.h>

#define MAX_DEPTH 64 /* maximum depth of a tree that is removed */
#define MAX_TRIES 16 /* retries after changes by other processes */
#define PIECE     ((size_t)16 << 20)

/* Opens a regular file for reading; returns the descriptor or -1. */
static int open_regular(const char *path, struct stat *ret,
                        struct pst_diag *diag)
{
    /* A FIFO would block here without O_NONBLOCK. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        (void)pst_diag_errno(diag, errno, "%s", path);
        return -1;
    }
    if (fstat(fd, ret) != 0)
        (void)pst_diag_errno(diag, errno, "%s", path);
    else if (!S_ISREG(ret->st_mode))
        (void)pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                           "%s: not a regular file", path);
    else
        return fd;
    close(fd);
    return -1;
}

enum pst_status pst_file_open(const char *path, struct pst_file *ret,
                              struct pst_diag *diag)
{
    struct pst_file file = {.path = pst_strdup(PST_TAG_BASE, path)};
    struct stat st;

    if (!file.path)
        return pst_diag_nomem(diag, strlen(path) + 1);
    file.fd = open_regular(path, &st, diag);
    if (file.fd < 0) {
        pst_free(file.path);
        return PST_ERR_IO;
    }
    file.size = (uint64_t)st.st_size;
    file.written = st.st_mtim;
    *ret = file;
    return PST_OK;
}

void pst_file_close(struct pst_file *file)
{
    if (!file->path)
        return;
    close(file->fd);
    pst_free(file->path);
    file->path = NULL;
    file->fd = -1;
}

enum pst_status pst_file_check_size(const struct pst_file *file,
                                    struct pst_diag *diag)
{
    struct stat st;

    if (fstat(file->fd, &st) != 0)
        return pst_diag_errno(diag, errno, "%s", file->path);
    if ((uint64_t)st.st_size >= file->size)
        return PST_OK;
    return pst_diag_set(diag, PST_E_FILE_CHANGED,
                        "%s has become shorter while it was in use: it had "
                        "%llu bytes, now %llu; put the whole file back and "
                        "start again",
                        file->path, (unsigned long long)file->size,
                        (unsigned long long)st.st_size);
}

/* Reports that the file was truncated while it was read or, if it has its
 * former size again, that it changed. */
static enum pst_status refuse_cut(const struct pst_file *file,
                                  struct pst_diag *diag)
{
    const enum pst_status status = pst_file_check_size(file, diag);

    return status != PST_OK
               ? status
               : pst_diag_set(diag, PST_E_FILE_CHANGED,
                              "%s was shorter for a while when it was read; "
                              "start again when nobody writes to it",
                              file->path);
}

enum pst_status pst_file_read_at(const struct pst_file *file, uint64_t offset,
                                 void *dst, size_t bytes, struct pst_diag *diag)
{
    unsigned char *to = dst;

    if (offset > file->size || bytes > file->size - offset)
        return pst_diag_set(diag, PST_E_FILE_CUT,
                            "%s: %zu bytes at %llu lie outside of the file's "
                            "%llu",
                            file->path, bytes, (unsigned long long)offset,
                            (unsigned long long)file->size);
    while (bytes > 0) {
        const ssize_t n =
            pread(file->fd, to, PST_MIN(bytes, PIECE), (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_diag_errno(diag, errno, "cannot read %s", file->path);
        if (n == 0)
            return refuse_cut(file, diag);
        pst_alive_progress();
        to += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return PST_OK;
}

void pst_file_keep_head(struct pst_file *file, const void *head, size_t bytes)
{
    file->head = bytes;
    file->head_digest = pst_hash(head, bytes, 0);
}

static enum pst_status check_head(const struct pst_file *file,
                                  struct pst_diag *diag)
{
    unsigned char *head = pst_alloc(PST_TAG_BASE, (size_t)file->head);
    enum pst_status status;

    if (!head)
        return pst_diag_nomem(diag, (size_t)file->head);
    status = pst_file_read_at(file, 0, head, (size_t)file->head, diag);
    if (status == PST_OK &&
        pst_hash(head, (size_t)file->head, 0) != file->head_digest)
        status = pst_diag_set(diag, PST_E_FILE_CHANGED,
                              "%s was written anew while it was in use: its "
                              "header is another one",
                              file->path);
    pst_free(head);
    return status;
}

enum pst_status pst_file_check_written(const struct pst_file *file, bool *ret,
                                       struct pst_diag *diag)
{
    struct stat st;

    if (fstat(file->fd, &st) != 0)
        return pst_diag_errno(diag, errno, "%s", file->path);
    *ret = st.st_mtim.tv_sec != file->written.tv_sec ||
           st.st_mtim.tv_nsec != file->written.tv_nsec ||
           (uint64_t)st.st_size != file->size;
    if ((uint64_t)st.st_size < file->size)
        return pst_file_check_size(file, diag);
    return *ret && file->head > 0 ? check_head(file, diag) : PST_OK;
}

enum pst_status pst_file_digest(const struct pst_file *file, char out[33],
                                struct pst_diag *diag)
{
    const size_t piece = (size_t)1 << 20;
    unsigned char *bytes = pst_alloc(PST_TAG_BASE, piece);
    enum pst_status status = PST_OK;
    XXH128_canonical_t canonical;
    XXH3_state_t state;

    if (!bytes)
        return pst_diag_nomem(diag, piece);
    (void)XXH3_128bits_reset(&state);
    for (uint64_t at = 0; at < file->size && status == PST_OK; at += piece) {
        const size_t n = (size_t)PST_MIN(piece, file->size - at);

        status = pst_file_read_at(file, at, bytes, n, diag);
        if (status == PST_OK)
            (void)XXH3_128bits_update(&state, bytes, n);
    }
    pst_free(bytes);
    if (status != PST_OK)
        return status;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    pst_digest_text(canonical.digest, out);
    return PST_OK;
}

bool pst_path_is_same(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 &&
                                 x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

enum pst_status pst_file_read(const char *path, size_t max, char **ret,
                              size_t *ret_size, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    size_t size, done = 0;
    struct stat st;
    char *text;
    int fd;

    fd = open_regular(path, &st, diag);
    if (fd < 0)
        return PST_ERR_IO;
    size = (size_t)st.st_size;
    if (size > max) {
        close(fd);
        return pst_diag_set(diag, PST_E_FILE_TOO_LARGE,
                            "%s: %zu bytes, at most %zu are allowed", path,
                            size, max);
    }
    text = pst_alloc(PST_TAG_BASE, size + 1);
    if (!text) {
        close(fd);
        return pst_diag_nomem(diag, size + 1);
    }
    while (done < size && status == PST_OK) {
        const ssize_t n = read(fd, text + done, size - done);

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            status = pst_diag_set(diag, PST_E_FILE_CHANGED,
                                  "%s: became shorter while read", path);
        else if (errno != EINTR)
            status = pst_diag_errno(diag, errno, "%s", path);
    }
    close(fd);
    if (status != PST_OK) {
        pst_free(text);
        return status;
    }
    text[size] = '\0';
    *ret = text;
    *ret_size = size;
    return PST_OK;
}

/* Creates the temporary file, with a new name on each try: two processes may
 * write the same file, and a killed process leaves its temporary file. */
static int create_temp(const char *path, char *temp, size_t size)
{
    static atomic_uint serial;

    for (int tries = 0; tries < 1000; tries++) {
        int fd;

        snprintf(temp, size, "%s.tmp-%ld-%u", path, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Reports that the path is no file. A rename replaces any file, for root even
 * /dev/full: a character device is therefore written in place, and other kinds
 * are refused. */
static enum pst_status refuse_kind(const char *path, const struct stat *st,
                                   struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                        "cannot write %s: it is a %s", path,
                        S_ISDIR(st->st_mode) ? "folder" : "pipe or a device");
}

/* Finds the file to replace, following a symbolic link. PST_AGAIN: the link has
 * changed meanwhile. *ret_fd: the opened device; -1 if the path is no
 * device. */
static enum pst_status resolve_target(const char *path, char **ret, int *ret_fd,
                                      struct pst_diag *diag)
{
    struct stat st, is;

    *ret = NULL;
    *ret_fd = -1;
    if (stat(path, &st) != 0)
        return PST_OK; /* the path does not exist, or opening will report the
                          error */
    if (S_ISCHR(st.st_mode)) {
        *ret_fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (*ret_fd < 0)
            return pst_diag_errno(diag, errno, "cannot write %s", path);
        if (fstat(*ret_fd, &is) == 0 && S_ISCHR(is.st_mode))
            return PST_OK;
        close(*ret_fd);
        return PST_AGAIN;
    }
    if (!S_ISREG(st.st_mode))
        return refuse_kind(path, &st, diag);
    if (lstat(path, &is) != 0 || !S_ISLNK(is.st_mode))
        return PST_OK;
    *ret = realpath(path, NULL);
    if (*ret != NULL && lstat(*ret, &is) == 0 && S_ISREG(is.st_mode))
        return PST_OK;
    free(*ret); /* allocated by the C library */
    *ret = NULL;
    return PST_AGAIN;
}

/* Sets the path of the file to replace. follow: if `path` is a symbolic link,
 * replaces its target, else the link itself. */
static enum pst_status find_place(const char *path, bool follow,
                                  struct pst_new_file *file,
                                  struct pst_diag *diag)
{
    enum pst_status status = follow ? PST_AGAIN : PST_OK;
    struct stat st;
    char *real = NULL;

    if (!follow && lstat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISLNK(st.st_mode))
        return refuse_kind(path, &st, diag);
    for (int tries = 0; status == PST_AGAIN && tries < MAX_TRIES; tries++)
        status = resolve_target(path, &real, &file->fd, diag);
    if (status == PST_AGAIN)
        return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                            "cannot write %s: what it means changes all the "
                            "time",
                            path);
    if (status != PST_OK)
        return status;
    file->path = pst_strdup(PST_TAG_BASE, real != NULL ? real : path);
    free(real); /* allocated by the C library */
    if (file->path != NULL)
        return PST_OK;
    if (file->fd >= 0)
        close(file->fd);
    return pst_diag_nomem(diag, strlen(path));
}

static enum pst_status open_new(const char *path, bool follow,
                                struct pst_new_file *ret, struct pst_diag *diag)
{
    struct pst_new_file file = {.fd = -1};
    size_t temp_size;
    enum pst_status status = find_place(path, follow, &file, diag);

    if (status != PST_OK)
        return status;
    if (file.fd < 0) {
        temp_size = strlen(file.path) + 48;
        file.temp = pst_alloc(PST_TAG_BASE, temp_size);
        if (!file.temp) {
            status = pst_diag_nomem(diag, temp_size);
            goto fail;
        }
        file.fd = create_temp(file.path, file.temp, temp_size);
    }
    if (file.fd < 0) {
        status = pst_diag_errno(diag, errno, "cannot write %s", path);
        goto fail;
    }
    *ret = file;
    return PST_OK;

fail:
    pst_free(file.temp);
    pst_free(file.path);
    return status;
}

enum pst_status pst_new_file_open(const char *path, struct pst_new_file *ret,
                                  struct pst_diag *diag)
{
    return open_new(path, true, ret, diag);
}

enum pst_status pst_new_file_join(const char *temp, struct pst_new_file *ret,
                                  struct pst_diag *diag)
{
    struct pst_new_file file = {.fd = open(temp, O_WRONLY | O_CLOEXEC),
                                .joined = true};

    if (file.fd < 0)
        return pst_diag_errno(diag, errno, "cannot write %s", temp);
    file.path = pst_strdup(PST_TAG_BASE, temp);
    if (file.path == NULL) {
        close(file.fd);
        return pst_diag_nomem(diag, strlen(temp) + 1);
    }
    *ret = file;
    return PST_OK;
}

/* Records the error and removes the temporary file; the old file stays. */
static enum pst_status abort_write(struct pst_new_file *file, int err,
                                   struct pst_diag *diag)
{
    const enum pst_status status =
        pst_diag_errno(diag, err, "cannot write %s (%llu bytes so far)",
                       file->path, (unsigned long long)file->size);

    pst_new_file_abort(file);
    return status;
}

static enum pst_status refuse_closed(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_FILE_CLOSED,
                        "file is closed, an error came "
                        "before");
}

enum pst_status pst_new_file_write(struct pst_new_file *file, const void *data,
                                   size_t size, struct pst_diag *diag)
{
    return pst_new_file_write_at(file, file->size, data, size, diag);
}

enum pst_status pst_new_file_write_at(struct pst_new_file *file,
                                      uint64_t offset, const void *data,
                                      size_t size, struct pst_diag *diag)
{
    const char *p = data;

    if (file->fd < 0)
        return refuse_closed(diag);
    while (size) {
        const ssize_t n =
            pwrite(file->fd, p, PST_MIN(size, PIECE), (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return abort_write(file, n < 0 ? errno : ENOSPC, diag);
        /* Starts writeback now, so that the fsync at the end does not wait long
         * without reporting progress. */
        file->waiting += (size_t)n;
        if (file->waiting >= PIECE) {
            (void)sync_file_range(file->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
            file->waiting = 0;
        }
        pst_alive_progress();
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
        file->size = PST_MAX(file->size, offset);
    }
    return PST_OK;
}

/* Syncs the folder of path. Cuts path at its last slash instead of copying it:
 * after the rename no allocation may fail. */
static enum pst_status fsync_parent(char *path, struct pst_diag *diag)
{
    char *slash = strrchr(path, '/');

    if (!slash)
        return pst_fsync_dir(".", diag);
    slash[slash == path] = '\0';
    return pst_fsync_dir(path, diag);
}

enum pst_status pst_new_file_commit(struct pst_new_file *file,
                                    struct pst_diag *diag)
{
    enum pst_status status;
    struct stat st;
    int fd;

    if (file->fd < 0)
        return refuse_closed(diag);
    if ((file->temp != NULL || file->joined) && fsync(file->fd) != 0)
        return abort_write(file, errno, diag);
    fd = file->fd;
    file->fd = -1;
    /* Some file systems report a full quota only at close. */
    if (close(fd) != 0 && errno != EINTR)
        return abort_write(file, errno, diag);
    if (file->temp == NULL) { /* a device, or renamed by another process */
        pst_new_file_abort(file);
        return PST_OK;
    }
    pst_fault_point("rename");
    /* The path may have been replaced since it was opened. */
    if (lstat(file->path, &st) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISLNK(st.st_mode)) {
        status = refuse_kind(file->path, &st, diag);
        pst_new_file_abort(file);
        return status;
    }
    if (rename(file->temp, file->path) != 0)
        return abort_write(file, errno, diag);
    pst_free(file->temp);
    file->temp = NULL;
    status = fsync_parent(file->path, diag);
    pst_free(file->path);
    file->path = NULL;
    return status;
}

void pst_new_file_abort(struct pst_new_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temp)
        unlink(file->temp);
    pst_free(file->temp);
    pst_free(file->path);
    file->temp = file->path = NULL;
    file->fd = -1;
}

static enum pst_status write_whole(const char *path, bool follow,
                                   const void *data, size_t size,
                                   struct pst_diag *diag)
{
    struct pst_new_file file;
    enum pst_status status = open_new(path, follow, &file, diag);

    if (status != PST_OK)
        return status;
    status = pst_new_file_write(&file, data, size, diag);
    if (status == PST_OK)
        status = pst_new_file_commit(&file, diag);
    pst_new_file_abort(&file);
    return status;
}

enum pst_status pst_file_write(const char *path, const void *data, size_t size,
                               struct pst_diag *diag)
{
    return write_whole(path, true, data, size, diag);
}

enum pst_status pst_file_replace(const char *path, const void *data,
                                 size_t size, struct pst_diag *diag)
{
    return write_whole(path, false, data, size, diag);
}

static enum pst_status make_dir(const char *path, unsigned mode,
                                struct pst_diag *diag)
{
    struct stat st;
    char target[PATH_MAX];
    unsigned tries = 0;
    ssize_t n;
    int err;

    do {
        if (mkdir(path, (mode_t)mode) == 0)
            return PST_OK;
        err = errno;
        if (stat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                return PST_OK;
            err = ENOTDIR;
        } else if (err == EEXIST && errno == ENOENT) {
            n = readlink(path, target, sizeof(target));
            if (n >= 0)
                return pst_diag_errno(diag, ENOENT,
                                      "cannot make directory %s: it is a link "
                                      "to %.*s",
                                      path, (int)n, target);
        }
        /* another process removed it */
    } while (err == EEXIST && ++tries < MAX_TRIES);
    return pst_diag_errno(diag, err, "cannot make directory %s", path);
}

enum pst_status pst_mkdirs(const char *path, unsigned mode,
                           struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    char *copy = pst_strdup(PST_TAG_BASE, path);

    if (!copy)
        return pst_diag_nomem(diag, strlen(path) + 1);
    for (char *p = copy; *p && status == PST_OK; p++) {
        if (*p != '/' || p == copy || p[1] == '/' || !p[1])
            continue;
        *p = '\0';
        status = make_dir(copy, mode, diag);
        *p = '/';
    }
    if (status == PST_OK)
        status = make_dir(copy, mode, diag);
    pst_free(copy);
    return status;
}

/* Removes the entries of a directory; takes its descriptor. Links are removed,
 * never followed. Returns 0 or errno. */
static int remove_entries(int fd, int depth)
{
    DIR *dir = depth < MAX_DEPTH ? fdopendir(fd) : NULL;
    struct dirent *e;
    int err = 0;

    if (!dir) {
        err = depth < MAX_DEPTH ? errno : ELOOP;
        close(fd);
        return err;
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (!err && (errno = 0, e = readdir(dir))) {
        int sub;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            err = errno;
            break;
        }
        sub = openat(fd, e->d_name,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        err = sub < 0 ? errno : remove_entries(sub, depth + 1);
        if (!err && unlinkat(fd, e->d_name, AT_REMOVEDIR) != 0)
            err = errno;
    }
    if (!err)
        err = errno;
    closedir(dir);
    return err;
}

enum pst_status pst_remove_at(int dir, const char *name, struct pst_diag *diag)
{
    int fd, err;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return PST_OK;
    if (errno != EISDIR && errno != EPERM)
        return pst_diag_errno(diag, errno, "cannot remove %s", name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    err = fd < 0 ? errno : remove_entries(fd, 0);
    if (!err && unlinkat(dir, name, AT_REMOVEDIR) != 0)
        err = errno;
    if (err)
        return pst_diag_errno(diag, err, "cannot remove %s", name);
    return PST_OK;
}

enum pst_status pst_remove_tree(const char *path, struct pst_diag *diag)
{
    return pst_remove_at(AT_FDCWD, path, diag);
}

enum pst_status pst_fsync_dir(const char *path, struct pst_diag *diag)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = 0;

    if (fd < 0)
        return pst_diag_errno(diag, errno, "%s", path);
    /* Some file systems cannot sync a directory and return EINVAL. */
    if (fsync(fd) != 0 && errno != EINVAL)
        err = errno;
    close(fd);
    return err ? pst_diag_errno(diag, err, "cannot sync directory %s", path)
               : PST_OK;
}
