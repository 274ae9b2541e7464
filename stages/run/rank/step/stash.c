// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/stash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stages/base/crc32c.h"
#include "stages/base/host/fault.h"
#include "stages/base/host/thread.h"
#include "stages/base/str.h"

/* Seconds that a rank waits before it polls its messages. */
#define WAIT_S 0.0005

#define DISK "disk:"

/* Identifies the slot whose bytes are at a location outside of the arena. */
struct pst_stash_mark {
    uint64_t step;
    unsigned stage, region;
    int microbatch;
    uint32_t crc; /* CRC32C of the bytes; set with options.verify */
};

/* --- one copy ------------------------------------------------------------- */

static unsigned char *slot_of(const struct pst_stash *s,
                              const struct pst_spill_job *job)
{
    const struct pst_slot_pool *pool =
        &s->layout->stages[job->stage].pools[job->region];

    return pst_rank_at(s->device, pool->base + job->slot * pool->size);
}

static enum pst_status fail(struct pst_stash *s, const char *what, int err)
{
    return pst_diag_errno(&s->diag, err, "%s the stash in %s", what,
                          s->location);
}

static enum pst_status write_all(struct pst_stash *s, const unsigned char *from,
                                 size_t n, size_t at)
{
    while (n > 0) {
        const ssize_t k = pwrite(s->fd, from, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return fail(s, "cannot write", k < 0 ? errno : ENOSPC);
        from += k;
        at += (size_t)k;
        n -= (size_t)k;
    }
    return PST_OK;
}

static enum pst_status read_all(struct pst_stash *s, unsigned char *to,
                                size_t n, size_t at)
{
    while (n > 0) {
        const ssize_t k = pread(s->fd, to, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return fail(s, "cannot read", k < 0 ? errno : EIO);
        to += k;
        at += (size_t)k;
        n -= (size_t)k;
    }
    return PST_OK;
}

static enum pst_status evict_slot(struct pst_stash *s,
                                  const struct pst_spill_job *job)
{
    unsigned char *from = pst_device_host(&s->device->mem, slot_of(s, job));
    enum pst_status status = PST_OK;

    s->marks[job->place] = (struct pst_stash_mark){
        s->step, job->stage, job->region, job->microbatch,
        s->verify ? pst_crc32c(0, from, job->bytes) : 0};
    if (s->ram != NULL)
        memcpy(s->ram + job->outside, from, job->bytes);
    else
        status = write_all(s, from, job->bytes, job->outside);
    if (s->verify && status == PST_OK)
        memset(from, 0xff, job->bytes); /* poison, so that a later read is
                                         * noticed */
    return status;
}

static enum pst_status reload_slot(struct pst_stash *s,
                                   const struct pst_spill_job *job)
{
    unsigned char *to = pst_device_host(&s->device->mem, slot_of(s, job));
    const struct pst_stash_mark *m = &s->marks[job->place];
    enum pst_status status = PST_OK;

    if (m->step != s->step || m->stage != job->stage ||
        m->region != job->region || m->microbatch != job->microbatch)
        return pst_diag_set(
            &s->diag, PST_E_RUN_STASH_DAMAGED,
            "the stash of stage %u, microbatch %d is not where it was put: "
            "there is that of stage %u, microbatch %d",
            job->stage, job->microbatch, m->stage, m->microbatch);
    if (s->ram != NULL)
        memcpy(to, s->ram + job->outside, job->bytes);
    else
        status = read_all(s, to, job->bytes, job->outside);
    pst_fault_data("stash", to, job->bytes);
    if (status == PST_OK && s->verify &&
        pst_crc32c(0, to, job->bytes) != m->crc)
        return pst_diag_set(&s->diag, PST_E_RUN_STASH_DAMAGED,
                            "the stash of stage %u, microbatch %d has changed "
                            "in %s",
                            job->stage, job->microbatch, s->location);
    return status;
}

/* --- the thread ----------------------------------------------------------- */

static void *run_copies(void *arg)
{
    struct pst_stash *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        const struct pst_spill_job *job;
        enum pst_status status;

        while (!s->closing && s->done == s->issued)
            pthread_cond_wait(&s->work, &s->lock);
        if (s->closing)
            break;
        job = &s->layout->spills.jobs.at[s->done];
        status = s->status;
        pthread_mutex_unlock(&s->lock);
        if (status == PST_OK)
            status = job->in ? reload_slot(s, job) : evict_slot(s, job);
        pthread_mutex_lock(&s->lock);
        s->status = status;
        s->done++;
        if (status == PST_OK && job->in)
            s->totals.bytes_in += job->bytes;
        else if (status == PST_OK)
            s->totals.bytes_out += job->bytes;
        pthread_cond_signal(&s->copied);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static enum pst_status start_thread(struct pst_stash *s, struct pst_diag *diag)
{
    pthread_condattr_t attr;
    int err;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->copied, &attr);
    pthread_condattr_destroy(&attr);
    err = pst_thread_start(&s->thread, run_copies, s);
    s->runs = err == 0;
    if (err == 0)
        return PST_OK;
    pthread_cond_destroy(&s->copied);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    return pst_diag_errno(diag, err, "the thread of the stash");
}

/* --- location ------------------------------------------------------------- */

/* Opens a file without a name, which disappears with the process. */
static int open_unnamed(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct pst_str path = {0};

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    pst_str_addf(&path, "%s/.penstock-stash-XXXXXX", folder);
    if (path.failed) {
        errno = ENOMEM;
    } else {
        fd = mkostemp(path.text, O_CLOEXEC);
        if (fd >= 0 && unlink(path.text) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    pst_str_fini(&path);
    return fd;
}

static enum pst_status make_file(const char *folder, int *ret,
                                 struct pst_diag *diag)
{
    *ret = open_unnamed(folder);
    return *ret >= 0 ? PST_OK
                     : pst_diag_errno(diag, errno,
                                      "cannot make the file of --stash in %s",
                                      folder);
}

static enum pst_status open_place(struct pst_stash *s, const char *words,
                                  struct pst_arena *heap, struct pst_diag *diag)
{
    const bool ram = strcmp(words, "ram") == 0;

    s->location = pst_arena_strdup(heap, ram ? "memory" : words + strlen(DISK));
    if (s->location == NULL)
        return pst_diag_nomem(diag, strlen(words));
    if (!ram)
        return make_file(s->location, &s->fd, diag);
    s->ram = mmap(NULL, s->size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->ram != MAP_FAILED)
        return PST_OK;
    s->ram = NULL;
    return pst_diag_nomem(diag, s->size);
}

/* Checks the location of a stash that evicts nothing so far: a wrong folder is
 * refused now, not when a later change of the job makes it evict. */
static enum pst_status check_location(const char *words, struct pst_diag *diag)
{
    enum pst_status status;
    int fd;

    if (words == NULL || strncmp(words, DISK, strlen(DISK)) != 0)
        return PST_OK;
    status = make_file(words + strlen(DISK), &fd, diag);
    if (status == PST_OK)
        (void)close(fd);
    return status;
}

enum pst_status pst_stash_open(struct pst_stash *s,
                               const struct pst_rank_role *role,
                               const struct pst_layout *layout,
                               struct pst_rank_device *device,
                               struct pst_arena *heap, struct pst_diag *diag)
{
    enum pst_status status;

    *s = (struct pst_stash){.fd = -1};
    if (layout->spills.jobs.n == 0)
        return check_location(role->options.stash, diag);
    s->device = device;
    s->verify = role->options.verify;
    s->size = layout->memory.outside;
    s->marks =
        pst_arena_calloc(heap, layout->spills.n_outside, sizeof(*s->marks));
    if (s->marks == NULL)
        return pst_diag_nomem(diag,
                              layout->spills.n_outside * sizeof(*s->marks));
    status = open_place(s, role->options.stash, heap, diag);
    s->layout = layout;
    if (status == PST_OK)
        status = start_thread(s, diag);
    return status;
}

void pst_stash_close(struct pst_stash *s)
{
    if (s->layout == NULL)
        return;
    if (s->runs) {
        pthread_mutex_lock(&s->lock);
        s->closing = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->copied);
        pthread_cond_destroy(&s->work);
        pthread_mutex_destroy(&s->lock);
    }
    if (s->ram != NULL)
        (void)munmap(s->ram, s->size);
    if (s->fd >= 0)
        (void)close(s->fd);
    *s = (struct pst_stash){.fd = -1};
}

void pst_stash_empty(struct pst_stash *s)
{
    if (s->layout == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    while (s->done < s->issued)
        pthread_cond_wait(&s->copied, &s->lock);
    pthread_mutex_unlock(&s->lock);
    /* If this fails, the memory or disk space stays allocated. */
    if (s->ram != NULL)
        (void)madvise(s->ram, s->size, MADV_DONTNEED);
    else if (ftruncate(s->fd, 0) != 0)
        errno = 0;
}

/* --- a step --------------------------------------------------------------- */

void pst_stash_begin(struct pst_stash *s, uint64_t step)
{
    if (s->layout == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    while (s->done < s->issued)
        pthread_cond_wait(&s->copied, &s->lock);
    s->step = step;
    s->issued = s->done = s->n_pushed = 0;
    s->status = PST_OK;
    pst_diag_init(&s->diag);
    pthread_mutex_unlock(&s->lock);
}

/* Allows copies to begin. For a device with separate memory, the rank's own
 * thread copies slots between the device and the host's copy, here and in
 * push_loaded(). */
void pst_stash_issue(struct pst_stash *s, unsigned copies)
{
    const struct pst_spill_job *jobs;

    if (s->layout == NULL || copies <= s->issued)
        return;
    jobs = s->layout->spills.jobs.at;
    for (unsigned i = s->issued; i < copies; i++)
        if (!jobs[i].in)
            (void)pst_device_pull(&s->device->mem, slot_of(s, &jobs[i]),
                                  jobs[i].bytes);
    pthread_mutex_lock(&s->lock);
    s->issued = copies;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static void push_loaded(struct pst_stash *s, unsigned copies)
{
    const struct pst_spill_job *jobs = s->layout->spills.jobs.at;

    for (; s->n_pushed < copies; s->n_pushed++)
        if (jobs[s->n_pushed].in)
            pst_device_push(&s->device->mem, slot_of(s, &jobs[s->n_pushed]),
                            jobs[s->n_pushed].bytes);
}

static void wait_deadline(struct timespec *ret)
{
    (void)clock_gettime(CLOCK_MONOTONIC, ret);
    ret->tv_nsec += (long)(WAIT_S * 1e9);
    if (ret->tv_nsec >= 1000000000) {
        ret->tv_sec++;
        ret->tv_nsec -= 1000000000;
    }
}

enum pst_status pst_stash_await(struct pst_stash *s, unsigned copies,
                                bool *ret_moved)
{
    struct timespec until;
    double begin = 0;
    unsigned before;
    bool ended;

    *ret_moved = false;
    if (s->layout == NULL || copies <= s->n_pushed)
        return PST_OK;
    pthread_mutex_lock(&s->lock);
    before = s->done;
    if (s->done < copies) {
        begin = pst_now();
        wait_deadline(&until);
        (void)pthread_cond_timedwait(&s->copied, &s->lock, &until);
        s->totals.waited += pst_now() - begin;
    }
    *ret_moved = s->done != before;
    ended = s->done >= copies;
    pthread_mutex_unlock(&s->lock);
    if (ended)
        push_loaded(s, copies);
    return ended ? PST_OK : PST_AGAIN;
}

const struct pst_diag *pst_stash_fault(struct pst_stash *s)
{
    enum pst_status status;

    if (s->layout == NULL)
        return NULL;
    pthread_mutex_lock(&s->lock);
    status = s->status;
    pthread_mutex_unlock(&s->lock);
    return status != PST_OK ? &s->diag : NULL;
}
