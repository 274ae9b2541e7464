// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/control/frame.h"
#include "stages/base/alloc.h"
#include "stages/base/str.h"

#define HEAD   4 /* bytes of the length before each frame */
#define BEFORE ".before"

/* --- one file ------------------------------------------------------------- */

/* Returns the size of the frame at an offset, including the length before it;
 * 0: there is none. */
static size_t frame_size_at(const struct pstd_journal_part *j, uint64_t at)
{
    unsigned char head[HEAD];
    size_t size;

    if (at + HEAD > j->size || pread(j->fd, head, HEAD, (off_t)at) != HEAD)
        return 0;
    size = HEAD + pstd_frame_length(head);
    return size <= PSTD_REPLY_MAX && at + size <= j->size ? size : 0;
}

/* Returns the event number of a frame; 0: it has none. */
static uint64_t read_number(const unsigned char *data, size_t size)
{
    pstd_frame *frame = NULL;
    uint64_t seq = 0;

    if (pstd_frame_unpack(data + HEAD, size - HEAD, PSTD_REQUEST_FIELD, &frame,
                          NULL) == PST_OK &&
        frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
        seq = frame->event->seq;
    pstd_frame_free(frame);
    return seq;
}

/* Returns the event number of the frame at an offset. */
static uint64_t read_number_at(const struct pstd_journal_part *j, uint64_t at)
{
    const size_t size = frame_size_at(j, at);
    unsigned char *data;
    uint64_t seq = 0;

    if (size <= HEAD)
        return 0;
    data = pst_alloc(PST_TAG_DAEMON, size);
    if (data != NULL && pread(j->fd, data, size, (off_t)at) == (ssize_t)size)
        seq = read_number(data, size);
    pst_free(data);
    return seq;
}

static bool mark_event(struct pstd_journal_part *j, uint64_t at)
{
    return (j->next - j->first) % PSTD_JOURNAL_MARK != 0 ||
           pst_vec_push(PST_TAG_DAEMON, &j->marks, at);
}

/* Empties the file; its first event will be number `next`. */
static void empty_file(struct pstd_journal_part *j)
{
    if (ftruncate(j->fd, 0) != 0) {
        (void)close(j->fd);
        j->fd = -1;
    }
    j->first = j->next;
    j->size = j->seen = 0;
    j->marks.n = 0;
}

/* Counts complete frames; truncates an incomplete one. */
static enum pst_status scan_events(struct pstd_journal_part *j,
                                   struct pst_diag *diag)
{
    uint64_t at = 0, last = 0;
    size_t n;

    j->first = j->next = read_number_at(j, 0);
    while ((n = frame_size_at(j, at)) > 0) {
        if (!mark_event(j, at))
            return pst_diag_nomem(diag, sizeof(at));
        last = at;
        at += n;
        j->next++;
    }
    if (j->first > 0 && read_number_at(j, last) + 1 == j->next) {
        if (at < j->size && ftruncate(j->fd, (off_t)at) == 0)
            j->size = at;
        if (at == j->size)
            return PST_OK;
    }
    j->next = PST_MAX(j->next, (uint64_t)1);
    empty_file(j);
    return PST_OK;
}

static void close_part(struct pstd_journal_part *j)
{
    if (j->fd >= 0)
        (void)close(j->fd);
    pst_vec_fini(&j->marks);
    *j = (struct pstd_journal_part){.fd = -1};
}

static enum pst_status open_part(const char *path, int flags,
                                 struct pstd_journal_part *ret,
                                 struct pst_diag *diag)
{
    struct pstd_journal_part j = {0};
    enum pst_status status;
    off_t size;

    j.fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
    size = j.fd >= 0 ? lseek(j.fd, 0, SEEK_END) : -1;
    if (size < 0) {
        const int err = errno;

        if (j.fd >= 0)
            (void)close(j.fd);
        return pst_diag_errno(diag, err, "cannot open %s", path);
    }
    j.size = (uint64_t)size;
    status = scan_events(&j, diag);
    if (status != PST_OK) {
        close_part(&j);
        return status;
    }
    *ret = j;
    return PST_OK;
}

static bool find_event(struct pstd_journal_part *j, uint64_t seq)
{
    if (j->seen == 0 || j->seen > seq || seq - j->seen >= PSTD_JOURNAL_MARK) {
        const uint64_t nth = (seq - j->first) / PSTD_JOURNAL_MARK;

        j->seen = j->first + nth * PSTD_JOURNAL_MARK;
        j->seen_at = j->marks.at[nth];
    }
    while (j->seen < seq) {
        const size_t size = frame_size_at(j, j->seen_at);

        if (size == 0) /* damaged: events up to the next mark are lost, too */
            return false;
        j->seen_at += size;
        j->seen++;
    }
    return true;
}

static void read_event(struct pstd_journal_part *j, uint64_t seq,
                       unsigned char **buffer, size_t *ret_size)
{
    unsigned char *grown;
    size_t size;

    if (j->fd < 0 || seq < j->first || seq >= j->next || !find_event(j, seq))
        return;
    size = frame_size_at(j, j->seen_at);
    grown = size > 0 ? pst_realloc(PST_TAG_DAEMON, *buffer, size) : NULL;
    if (grown == NULL)
        return;
    *buffer = grown;
    if (size > HEAD &&
        pread(j->fd, grown, size, (off_t)j->seen_at) == (ssize_t)size &&
        read_number(grown, size) == seq)
        *ret_size = size;
}

/* --- both files ----------------------------------------------------------- */

static enum pst_status name_before(const char *path, struct pst_str *ret,
                                   struct pst_diag *diag)
{
    pst_str_addf(ret, "%s" BEFORE, path);
    return ret->failed ? pst_diag_nomem(diag, strlen(path)) : PST_OK;
}

/* Opens the file PATH.before, if its last event precedes the first one of the
 * current file. */
static void open_before(struct pstd_journal *j, const char *path)
{
    struct pst_diag ignored;

    if (open_part(path, 0, &j->before, &ignored) != PST_OK)
        j->before = (struct pstd_journal_part){.fd = -1};
    if (j->before.fd >= 0 && j->now.size == 0 && j->before.size > 0)
        j->now.first = j->now.next = j->before.next;
    if (j->before.size == 0 || j->before.next != j->now.first)
        close_part(&j->before);
}

enum pst_status pstd_journal_open(const char *path, uint64_t max,
                                  struct pstd_journal *ret,
                                  struct pst_diag *diag)
{
    struct pstd_journal j = {.max = max};
    struct pst_str before = {0};
    enum pst_status status = name_before(path, &before, diag);

    j.before.fd = j.now.fd = -1;
    j.path = pst_strdup(PST_TAG_DAEMON, path);
    if (status == PST_OK && j.path == NULL)
        status = pst_diag_nomem(diag, strlen(path));
    if (status == PST_OK)
        status = open_part(path, O_CREAT, &j.now, diag);
    if (status == PST_OK)
        open_before(&j, before.text);
    pst_str_fini(&before);
    if (status == PST_OK)
        *ret = j;
    else
        pstd_journal_close(&j);
    return status;
}

void pstd_journal_close(struct pstd_journal *j)
{
    close_part(&j->before);
    close_part(&j->now);
    pst_free(j->path);
    j->path = NULL;
}

bool pstd_journal_is_writable(const struct pstd_journal *j)
{
    return j->now.fd >= 0;
}

uint64_t pstd_journal_first(const struct pstd_journal *j)
{
    return j->before.fd >= 0 ? j->before.first : j->now.first;
}

uint64_t pstd_journal_next(const struct pstd_journal *j)
{
    return j->now.next;
}

/* Renames the full file to PATH.before and begins a new one. */
static void begin_file(struct pstd_journal *j)
{
    const uint64_t next = j->now.next;
    struct pst_str before = {0};
    struct pst_diag ignored;

    if (name_before(j->path, &before, &ignored) != PST_OK ||
        rename(j->path, before.text) != 0) {
        empty_file(&j->now);
    } else {
        close_part(&j->before);
        j->before = j->now;
        j->now = (struct pstd_journal_part){.fd = -1};
        if (open_part(j->path, O_CREAT | O_EXCL, &j->now, &ignored) != PST_OK)
            j->now.fd = -1;
        j->now.first = j->now.next = next;
    }
    pst_str_fini(&before);
}

void pstd_journal_add(struct pstd_journal *j, const void *data, size_t size)
{
    struct pstd_journal_part *now = &j->now;

    if (now->fd < 0)
        return;
    if (now->size > 0 && now->size + size > j->max)
        begin_file(j);
    if (now->fd < 0)
        return;
    if (size > 0 && mark_event(now, now->size) &&
        pwrite(now->fd, data, size, (off_t)now->size) == (ssize_t)size) {
        now->size += size;
        now->next++;
        return;
    }
    empty_file(now); /* an incomplete event would make later ones unreadable */
    close_part(now);
}

void pstd_journal_get(struct pstd_journal *j, uint64_t seq,
                      unsigned char **buffer, size_t *ret_size)
{
    *ret_size = 0;
    read_event(seq < j->now.first ? &j->before : &j->now, seq, buffer,
               ret_size);
}
