// SPDX-License-Identifier: Apache-2.0
#include "stages/run/watch/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#define MAGIC "PSTFLT1" /* 8 bytes with its NUL */

struct head {
    char magic[8];
    uint32_t records, record_size;
    uint32_t rank, ranks;
    int64_t pid;
    char pad[24];
};
_Static_assert(sizeof(struct head) == 56, "part of a format");

struct file {
    struct head head;
    struct pst_flight_record at[PST_FLIGHT_RECORDS];
};

struct pst_flight {
    struct file *file;
    struct pst_flight_record *now; /* the open record; NULL: none */
    uint64_t seq;
    double offset; /* pst_now() + offset is in seconds since 1970 */
};

/* Mapped record files of this process, for pst_flight_repair in a signal
 * handler; files beyond MAX_MAPS are not mended. */
#define MAX_MAPS 256
static struct {
    _Atomic(struct file *) at;
    atomic_bool lost;
} maps[MAX_MAPS];

static void register_map(struct file *file)
{
    for (size_t i = 0; i < MAX_MAPS; i++) {
        struct file *none = NULL;

        if (atomic_compare_exchange_strong(&maps[i].at, &none, file)) {
            atomic_store(&maps[i].lost, false);
            return;
        }
    }
}

static size_t find_map(const struct file *file)
{
    size_t i = 0;

    while (i < MAX_MAPS && atomic_load(&maps[i].at) != file)
        i++;
    return i;
}

bool pst_flight_repair(const void *address)
{
    for (size_t i = 0; i < MAX_MAPS; i++) {
        struct file *file = atomic_load(&maps[i].at);

        if (file == NULL || (uintptr_t)address < (uintptr_t)file ||
            (uintptr_t)address >= (uintptr_t)(file + 1))
            continue;
        atomic_store(&maps[i].lost, true);
        return mmap(file, sizeof(*file), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                    0) != MAP_FAILED;
    }
    return false;
}

bool pst_flight_is_lost(struct pst_flight *f)
{
    const size_t i = f != NULL ? find_map(f->file) : MAX_MAPS;

    return i < MAX_MAPS && atomic_exchange(&maps[i].lost, false);
}

/* Maps the file. Its blocks are allocated first, since a store to a hole would
 * kill the process if the disk is full. */
static enum pst_status map_file(int fd, const char *path, struct file **ret,
                                struct pst_diag *diag)
{
    const int err = posix_fallocate(fd, 0, sizeof(**ret));
    void *at = MAP_FAILED;

    if (err == 0)
        at = mmap(NULL, sizeof(**ret), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
    if (at == MAP_FAILED)
        return pst_diag_errno(diag, err != 0 ? err : errno, "cannot make %s",
                              path);
    *ret = at;
    return PST_OK;
}

static enum pst_status create_file(const char *dir, unsigned rank,
                                   struct file **ret, struct pst_diag *diag)
{
    struct pst_str path = {0}, before = {0};
    enum pst_status status = pst_mkdirs(dir, 0750, diag);
    int fd = -1;

    pst_str_addf(&path, "%s/rank-%u" PST_FLIGHT_SUFFIX, dir, rank);
    pst_str_addf(&before, "%s/rank-%u" PST_FLIGHT_SUFFIX ".before", dir, rank);
    if (status == PST_OK && (path.failed || before.failed))
        status = pst_diag_nomem(diag, path.len);
    if (status == PST_OK) {
        if (rename(path.text, before.text) != 0 && errno != ENOENT)
            status = pst_diag_errno(diag, errno, "cannot rename %s", path.text);
        else
            fd = open(path.text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    }
    if (status == PST_OK && fd < 0)
        status = pst_diag_errno(diag, errno, "cannot make %s", path.text);
    if (status == PST_OK)
        status = map_file(fd, path.text, ret, diag);
    if (status != PST_OK && fd >= 0)
        (void)unlink(path.text); /* a partial file is useless */
    if (fd >= 0)
        (void)close(fd);
    pst_str_fini(&path);
    pst_str_fini(&before);
    return status;
}

enum pst_status pst_flight_open(const char *dir, unsigned rank, unsigned ranks,
                                struct pst_flight **ret, struct pst_diag *diag)
{
    struct pst_flight *f = pst_calloc(PST_TAG_EXEC, 1, sizeof(*f));
    struct timespec now;
    enum pst_status status;

    if (f == NULL)
        return pst_diag_nomem(diag, sizeof(*f));
    status = create_file(dir, rank, &f->file, diag);
    if (status != PST_OK) {
        pst_free(f);
        return status;
    }
    register_map(f->file);
    /* page faults happen now, not in a step */
    memset(f->file, 0, sizeof(*f->file));
    (void)clock_gettime(CLOCK_REALTIME, &now);
    f->offset = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - pst_now();
    f->file->head = (struct head){.records = PST_FLIGHT_RECORDS,
                                  .record_size = sizeof(*f->now),
                                  .rank = rank,
                                  .ranks = ranks,
                                  .pid = getpid()};
    memcpy(f->file->head.magic, MAGIC, sizeof(f->file->head.magic));
    *ret = f;
    return PST_OK;
}

void pst_flight_close(struct pst_flight *f)
{
    size_t map;

    if (f == NULL)
        return;
    map = find_map(f->file);
    if (map < MAX_MAPS)
        atomic_store(&maps[map].at, NULL);
    (void)munmap(f->file, sizeof(*f->file));
    pst_free(f);
}

/* Sets the record's number. It is 0 while the record changes, so that readers
 * skip a record that is partly written. */
static void set_record_number(struct pst_flight_record *r, uint64_t seq)
{
    atomic_signal_fence(memory_order_seq_cst);
    r->seq = seq;
    atomic_signal_fence(memory_order_seq_cst);
}

void pst_flight_begin(struct pst_flight *f, double now, uint64_t step,
                      unsigned kind, int stage, int microbatch)
{
    struct pst_flight_record *r;

    if (f == NULL || f->now != NULL)
        return;
    r = &f->file->at[f->seq % PST_FLIGHT_RECORDS];
    set_record_number(r, 0);
    r->step = step;
    r->begin = f->offset + now;
    r->end = 0;
    r->stage = stage;
    r->microbatch = microbatch;
    r->peer = -1;
    r->kind = (uint8_t)kind;
    r->sends = 0;
    r->last_poll = 0;
    set_record_number(r, ++f->seq);
    f->now = r;
}

void pst_flight_waits(struct pst_flight *f, int peer, bool sends)
{
    if (f == NULL || f->now == NULL)
        return;
    f->now->peer = peer;
    f->now->sends = sends;
    f->now->last_poll = f->offset + pst_now();
}

void pst_flight_end(struct pst_flight *f, double now)
{
    if (f == NULL || f->now == NULL)
        return;
    f->now->end = f->offset + now;
    f->now = NULL;
}

/* --- reading -------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = ((const struct pst_flight_record *)a)->seq,
                   y = ((const struct pst_flight_record *)b)->seq;

    return (x > y) - (x < y);
}

static enum pst_status refuse_file(const struct pst_file *file,
                                   struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_RECORD_DAMAGED,
                        "%s is not a flight record of this version",
                        file->path);
}

static enum pst_status read_head(const struct pst_file *file, struct head *ret,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    if (file->size != sizeof(struct file))
        return refuse_file(file, diag);
    status = pst_file_read_at(file, 0, ret, sizeof(*ret), diag);
    if (status == PST_OK &&
        (memcmp(ret->magic, MAGIC, sizeof(ret->magic)) != 0 ||
         ret->records != PST_FLIGHT_RECORDS ||
         ret->record_size != sizeof(struct pst_flight_record) ||
         ret->rank >= ret->ranks))
        status = refuse_file(file, diag);
    return status;
}

/* Moves the records that are in use to the front; returns their number. */
static size_t keep_records(struct pst_flight_record *at)
{
    size_t n = 0;

    for (size_t i = 0; i < PST_FLIGHT_RECORDS; i++)
        if (at[i].seq > 0 && (at[i].seq - 1) % PST_FLIGHT_RECORDS == i)
            at[n++] = at[i];
    qsort(at, n, sizeof(*at), compare_numbers);
    return n;
}

enum pst_status pst_flight_read(const char *path, struct pst_flight_log *ret,
                                struct pst_diag *diag)
{
    const size_t bytes = sizeof(struct file) - sizeof(struct head);
    struct pst_file file = {.fd = -1};
    struct pst_flight_record *at = NULL;
    struct head head;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status == PST_OK)
        status = read_head(&file, &head, diag);
    if (status == PST_OK) {
        at = pst_alloc(PST_TAG_EXEC, bytes);
        status = at != NULL
                     ? pst_file_read_at(&file, sizeof(head), at, bytes, diag)
                     : pst_diag_nomem(diag, bytes);
    }
    if (status == PST_OK)
        *ret = (struct pst_flight_log){.rank = head.rank,
                                       .ranks = head.ranks,
                                       .pid = head.pid,
                                       .n = keep_records(at),
                                       .at = at};
    else
        pst_free(at);
    pst_file_close(&file);
    return status;
}
