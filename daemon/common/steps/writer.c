// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/steps/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"

#define FLUSH_S 1.0

static off_t offset_of(uint64_t slot)
{
    return (off_t)(PSTD_STEPS_HEAD + slot * PSTD_STEPS_RECORD);
}

enum pst_status pstd_steps_begin(struct pstd_steps_writer *w,
                                 const struct pstd_steps_head *head,
                                 const char *const dirs[2],
                                 struct pst_diag *diag)
{
    *w = (struct pstd_steps_writer){.head = *head,
                                    .at = {{.fd = -1}, {.fd = -1}}};
    w->waiting =
        pst_calloc(PST_TAG_DAEMON, PSTD_STEPS_WAITING, sizeof(*w->waiting));
    if (w->waiting == NULL)
        return pst_diag_nomem(diag, PSTD_STEPS_WAITING * sizeof(*w->waiting));
    for (unsigned i = 0; i < PST_COUNT(w->at); i++) {
        if (dirs[i] == NULL)
            continue;
        w->at[i].last = head->base;
        w->at[i].dir = pst_strdup(PST_TAG_DAEMON, dirs[i]);
        if (w->at[i].dir == NULL) {
            pstd_steps_end(w);
            return pst_diag_nomem(diag, strlen(dirs[i]) + 1);
        }
    }
    return PST_OK;
}

void pstd_steps_disown_after(struct pstd_steps_writer *w, unsigned i,
                             uint64_t step)
{
    w->at[i].last = PST_MIN(w->at[i].last, step);
}

static void close_file(struct pstd_steps_target *t)
{
    if (t->fd >= 0)
        (void)close(t->fd);
    t->fd = -1;
}

void pstd_steps_end(struct pstd_steps_writer *w)
{
    if (w->waiting == NULL)
        return;
    for (unsigned i = 0; i < PST_COUNT(w->at); i++) {
        close_file(&w->at[i]);
        pst_free(w->at[i].dir);
    }
    pst_free(w->waiting);
    *w = (struct pstd_steps_writer){0};
}

/* --- opening -------------------------------------------------------------- */

/* Opens and locks a file. The lock ends with the descriptor; a file system
 * without locks is fine. */
static enum pst_status open_locked(struct pstd_steps_target *t,
                                   const char *path, int flags,
                                   struct pst_diag *diag)
{
    t->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0640);
    if (t->fd < 0)
        return pst_diag_errno(diag, errno, "cannot write %s", path);
    if (flock(t->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return PST_OK;
    close_file(t);
    return pst_diag_set(diag, PST_E_HISTORY_TAKEN,
                        "another process writes %s: each job needs a "
                        "--log-dir of its own",
                        path);
}

/* Reads the head. True: this run can continue the file. */
static bool can_continue(struct pstd_steps_target *t,
                         const struct pstd_steps_head *mine)
{
    unsigned char bytes[PSTD_STEPS_HEAD];
    struct pstd_steps_head head;

    if (pread(t->fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) ||
        !pstd_steps_parse_head(bytes, &head) ||
        strcmp(head.run, mine->run) != 0 ||
        head.base > PST_MIN(mine->base, t->last) || head.tokens != mine->tokens)
        return false;
    t->base = head.base;
    return true;
}

static enum pst_status write_at(struct pstd_steps_target *t,
                                const unsigned char *bytes, size_t size,
                                off_t offset, struct pst_diag *diag)
{
    ssize_t n;

    do
        n = pwrite(t->fd, bytes, size, offset);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size)
        return PST_OK;
    return pst_diag_errno(diag, n < 0 ? errno : ENOSPC,
                          "cannot write %s/" PSTD_STEPS_FILE, t->dir);
}

/* Removes the records of steps after this one. */
static enum pst_status truncate_after(struct pstd_steps_target *t,
                                      uint64_t step, struct pst_diag *diag)
{
    const off_t end = offset_of(pstd_steps_slots(step - t->base));
    struct stat info;

    if (fstat(t->fd, &info) == 0 &&
        (info.st_size <= end || ftruncate(t->fd, end) == 0))
        return PST_OK;
    return pst_diag_errno(diag, errno, "cannot write %s/" PSTD_STEPS_FILE,
                          t->dir);
}

/* Renames a non-empty file that this run does not continue, and begins a new
 * one. */
static enum pst_status replace_file(struct pstd_steps_target *t,
                                    const char *path,
                                    const struct pstd_steps_head *head,
                                    struct pst_diag *diag)
{
    unsigned char bytes[PSTD_STEPS_HEAD];
    struct pst_str former = {0};
    struct stat info;
    enum pst_status status = PST_OK;

    pst_str_addf(&former, "%s/" PSTD_STEPS_FORMER, t->dir);
    if (former.failed)
        status = pst_diag_nomem(diag, former.len);
    else if (fstat(t->fd, &info) != 0 ||
             (info.st_size > 0 && rename(path, former.text) != 0))
        status = pst_diag_errno(diag, errno, "cannot rename %s", path);
    else if (info.st_size > 0) {
        close_file(t);
        status = open_locked(t, path, O_EXCL, diag);
    }
    pst_str_fini(&former);
    pstd_steps_pack_head(head, bytes);
    if (status == PST_OK)
        status = write_at(t, bytes, sizeof(bytes), 0, diag);
    t->base = head->base;
    return status;
}

static enum pst_status open_file(struct pstd_steps_target *t,
                                 const struct pstd_steps_head *head,
                                 struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status;

    pst_str_addf(&path, "%s/" PSTD_STEPS_FILE, t->dir);
    status = path.failed ? pst_diag_nomem(diag, path.len)
                         : open_locked(t, path.text, 0, diag);
    if (status == PST_OK)
        status = can_continue(t, head) ? truncate_after(t, t->last, diag)
                                       : replace_file(t, path.text, head, diag);
    pst_str_fini(&path);
    if (status != PST_OK)
        close_file(t);
    return status;
}

/* --- writing -------------------------------------------------------------- */

/* Writes the next records that are adjacent in the file, in one call. */
static enum pst_status write_some(struct pstd_steps_target *t,
                                  const struct pstd_steps_writer *w,
                                  struct pst_diag *diag)
{
    enum { MOST = 256 };
    unsigned char bytes[MOST * PSTD_STEPS_RECORD];
    uint64_t first = 0, slot;
    size_t n = 0, end = t->done;
    enum pst_status status = PST_OK;

    for (; end < w->n && n < MOST; end++) {
        const struct pstd_steps_record *r = &w->waiting[end];

        if (r->step <= t->base || !pstd_steps_slot(r->step - t->base, &slot))
            continue;
        if (n > 0 && slot != first + n)
            break;
        first = n == 0 ? slot : first;
        pstd_steps_pack(r, bytes + n++ * PSTD_STEPS_RECORD);
    }
    if (n > 0)
        status =
            write_at(t, bytes, n * PSTD_STEPS_RECORD, offset_of(first), diag);
    if (status != PST_OK)
        return status;
    if (end > t->done)
        t->last = w->waiting[end - 1].step;
    t->done = end;
    return PST_OK;
}

static enum pst_status flush_target(struct pstd_steps_target *t,
                                    const struct pstd_steps_writer *w,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (t->fd < 0)
        status = open_file(t, &w->head, diag);
    while (status == PST_OK && t->done < w->n)
        status = write_some(t, w, diag);
    return status;
}

/* True if the open file is no longer the one in its folder; false also if the
 * file system does not answer. */
static bool is_moved(const struct pstd_steps_target *t)
{
    struct pst_str path = {0};
    struct stat mine, there;
    bool ret = false;

    pst_str_addf(&path, "%s/" PSTD_STEPS_FILE, t->dir);
    if (!path.failed && fstat(t->fd, &mine) == 0)
        ret = stat(path.text, &there) != 0
                  ? errno == ENOENT || errno == ENOTDIR
                  : mine.st_dev != there.st_dev || mine.st_ino != there.st_ino;
    pst_str_fini(&path);
    return ret;
}

void pstd_steps_close_moved(struct pstd_steps_writer *w)
{
    for (unsigned i = 0; i < PST_COUNT(w->at); i++)
        if (w->at[i].fd >= 0 && w->at[i].dir != NULL && is_moved(&w->at[i]))
            close_file(&w->at[i]);
}

/* Drops the first n waiting records. */
static void drop_records(struct pstd_steps_writer *w, size_t n)
{
    memmove(w->waiting, w->waiting + n, (w->n - n) * sizeof(*w->waiting));
    w->n -= n;
    for (unsigned i = 0; i < PST_COUNT(w->at); i++) {
        w->at[i].lacking |= w->at[i].failing && w->at[i].done < n;
        w->at[i].done -= PST_MIN(w->at[i].done, n);
    }
}

void pstd_steps_flush(struct pstd_steps_writer *w, double now,
                      pstd_steps_failed_fn failed, void *ctx)
{
    size_t done = w->n;

    if (w->waiting == NULL)
        return;
    w->flushed = now;
    for (unsigned i = 0; i < PST_COUNT(w->at); i++) {
        struct pstd_steps_target *t = &w->at[i];
        struct pst_diag why;
        bool was = t->failing;

        if (t->dir == NULL)
            continue;
        if (!t->left_out) {
            t->failing = flush_target(t, w, &why) != PST_OK;
            if (t->failing && !was)
                failed(ctx, t->dir, &why);
        }
        done = PST_MIN(done, t->done);
    }
    drop_records(w, done);
}

bool pstd_steps_add(struct pstd_steps_writer *w,
                    const struct pstd_steps_record *record, double now)
{
    if (w->waiting == NULL)
        return false;
    if (w->n == PSTD_STEPS_WAITING)
        drop_records(w, PSTD_STEPS_WAITING / 2);
    w->waiting[w->n++] = *record;
    return now - w->flushed >= FLUSH_S || w->n == PSTD_STEPS_WAITING / 2;
}

void pstd_steps_drop_after(struct pstd_steps_writer *w, uint64_t step)
{
    if (w->waiting == NULL)
        return;
    while (w->n > 0 && w->waiting[w->n - 1].step > step)
        w->n--;
    w->head.base = PST_MIN(w->head.base, step);
    for (unsigned i = 0; i < PST_COUNT(w->at); i++) {
        struct pstd_steps_target *t = &w->at[i];
        struct pst_diag ignored;

        t->done = PST_MIN(t->done, w->n);
        t->last = PST_MIN(t->last, step);
        /* If the file cannot be truncated, its records of later steps stay
         * until they are written again. A file that begins after `step` is
         * replaced when it is opened again. */
        if (t->fd >= 0 &&
            (step < t->base || truncate_after(t, step, &ignored) != PST_OK) &&
            step < t->base)
            close_file(t);
    }
}

bool pstd_steps_is_lacking(const struct pstd_steps_writer *w)
{
    bool ret = false;

    for (unsigned i = 0; w->waiting != NULL && i < PST_COUNT(w->at); i++) {
        const struct pstd_steps_target *t = &w->at[i];

        ret |= !t->left_out && (t->lacking || (t->failing && t->done < w->n));
    }
    return ret;
}

void pstd_steps_exclude(struct pstd_steps_writer *w, unsigned i, bool out)
{
    w->at[i].left_out = out;
}
