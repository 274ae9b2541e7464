// SPDX-License-Identifier: Apache-2.0
#include "stages/device/host.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "stages/base/host/alive.h"
#include "stages/base/host/pool.h"

#define HUGE_PAGE      ((size_t)2 << 20)
#define POPULATE_PIECE ((int64_t)256 << 20)

enum pst_status pst_host_refused(size_t size, int err, struct pst_diag *diag)
{
    if (err == ENOMEM)
        return pst_diag_set(
            diag, PST_E_MEMORY_ARENA,
            "there is no arena of %.2f MiB: the limit of this process's "
            "addresses (ulimit -v) or of the host's promises is lower; raise "
            "it, or take fewer or smaller microbatches or more ranks",
            (double)size / 1048576.0);
    return pst_diag_errno(diag, err, "there is no arena of %zu bytes", size);
}

void *pst_host_reserve(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void pst_host_release(void *at, size_t size)
{
    if (at != NULL)
        munmap(at, size);
}

enum pst_status pst_host_open(unsigned ordinal, size_t size,
                              struct pst_device_memory *ret,
                              struct pst_diag *diag)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)ordinal;
    if (p == MAP_FAILED)
        return pst_host_refused(size, errno, diag);
    if (size >= 4 * HUGE_PAGE)
        (void)madvise(p, size, MADV_HUGEPAGE); /* best effort */
    ret->base = p;
    ret->size = size;
    return PST_OK;
}

#ifdef MADV_POPULATE_WRITE
static void touch_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_device_memory *mem = ctx;
    int64_t begin, end;

    pst_pool_share((int64_t)mem->size, HUGE_PAGE, part, parts, &begin, &end);
    for (int64_t at = begin; at < end; at += POPULATE_PIECE) {
        (void)madvise(mem->base + at, (size_t)PST_MIN(end - at, POPULATE_PIECE),
                      MADV_POPULATE_WRITE); /* best effort */
        if (part == 0)
            pst_alive_progress(); /* part 0 runs on the watched thread */
    }
}
#endif

void pst_host_touch(struct pst_device_memory *mem, struct pst_pool *pool)
{
#ifdef MADV_POPULATE_WRITE
    pst_pool_run(pst_pool_if(pool, mem->size >= 4 * HUGE_PAGE), touch_part,
                 mem);
#else
    (void)mem;
    (void)pool;
#endif
}

void pst_host_close(struct pst_device_memory *mem)
{
    pst_host_release(mem->base, mem->size);
}

void pst_host_copy(struct pst_device_memory *mem, enum pst_queue queue,
                   void *to, const void *from, size_t size)
{
    (void)mem;
    (void)queue;
    if (size > 0) /* addresses may be NULL if size is 0 */
        memcpy(to, from, size);
}

void pst_host_zero(struct pst_device_memory *mem, void *to, size_t size)
{
    (void)mem;
    if (size > 0)
        memset(to, 0, size);
}

void pst_host_record(struct pst_device_memory *mem, enum pst_queue queue,
                     struct pst_event *event)
{
    (void)mem;
    (void)queue;
    event->time = pst_now();
}

void pst_host_wait(struct pst_device_memory *mem, enum pst_queue queue,
                   const struct pst_event *event)
{
    (void)mem;
    (void)queue;
    (void)event;
}

enum pst_status pst_host_poll(struct pst_device_memory *mem,
                              const struct pst_event *event)
{
    (void)mem;
    (void)event;
    return PST_OK;
}

double pst_host_time(struct pst_device_memory *mem,
                     const struct pst_event *event)
{
    (void)mem;
    return event->time;
}
