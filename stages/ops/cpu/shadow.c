// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/shadow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stages/device/host.h"
#include "stages/ops/core/op.h"
#include "stages/ops/cpu/kernels.h"
#include "stages/ops/cpu/lag.h"
#include "stages/ops/cpu/tasks.h"
#include "stages/ops/cpu/upcast.h"

static struct {
    atomic_uint_fast64_t launches, tasks, copies_in, copies_out, copies;
} counts;

static uint64_t load_count(atomic_uint_fast64_t *n)
{
    return atomic_load_explicit(n, memory_order_relaxed);
}

static void add_count(atomic_uint_fast64_t *n)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

struct pst_shadow_counts pst_shadow_counts(void)
{
    return (struct pst_shadow_counts){
        load_count(&counts.launches), load_count(&counts.tasks),
        load_count(&counts.copies_in), load_count(&counts.copies_out),
        load_count(&counts.copies)};
}

/* --- memory ------------------------------------------------------------- */

/* Reads $PENSTOCK_SHADOW_LAG: a seed, "7", or a seed and a failure, "7:100"
 * (action 100 and all later ones fail). */
static struct pst_lag *make_lag(ptrdiff_t shift)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *words = getenv("PENSTOCK_SHADOW_LAG");
    char *rest = NULL;
    const uint64_t seed = words != NULL ? strtoull(words, &rest, 10) : 1;
    const uint64_t fail =
        rest != NULL && *rest == ':' ? strtoull(rest + 1, NULL, 10) : 0;

    return pst_lag_new(shift, seed, fail);
}

/* Reserves device addresses that fault when accessed; the data is elsewhere, in
 * host memory. */
static enum pst_status shadow_open(unsigned ordinal, size_t size,
                                   struct pst_device_memory *ret,
                                   struct pst_diag *diag)
{
    struct pst_device_memory real = {0};
    enum pst_status status = pst_host_open(ordinal, size, &real, diag);
    void *p;

    if (status != PST_OK)
        return status;
    p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    if (p == MAP_FAILED) {
        status = pst_host_refused(size, errno, diag);
        pst_host_close(&real);
        return status;
    }
    ret->base = p;
    ret->size = size;
    ret->context = make_lag(real.base - ret->base);
    if (ret->context != NULL)
        return PST_OK;
    pst_host_close(&real);
    pst_host_release(p, size);
    return pst_diag_nomem(diag, size);
}

/* Appends a line with the counts to the file $PENSTOCK_SHADOW. A process that
 * gets here has touched no device memory, or it would have crashed. */
static void report_shadow(void)
{
    const struct pst_shadow_counts n = pst_shadow_counts();
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *path = getenv("PENSTOCK_SHADOW");
    const int fd =
        path != NULL
            ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
            : -1;

    if (fd < 0)
        return;
    (void)dprintf(fd,
                  "%llu launches, %llu tasks, %llu copies in, %llu out, %llu "
                  "within, 0 touches by the host\n",
                  (unsigned long long)n.launches, (unsigned long long)n.tasks,
                  (unsigned long long)n.copies_in,
                  (unsigned long long)n.copies_out,
                  (unsigned long long)n.copies);
    (void)close(fd);
}

static void shadow_close(struct pst_device_memory *mem)
{
    pst_host_release(mem->base + pst_lag_shift(mem->context), mem->size);
    pst_host_release(mem->base, mem->size);
    pst_lag_free(mem->context);
    report_shadow();
}

static void shadow_copy(struct pst_device_memory *mem, enum pst_queue queue,
                        void *to, const void *from, size_t size)
{
    add_count(queue == PST_QUEUE_IN    ? &counts.copies_in
              : queue == PST_QUEUE_OUT ? &counts.copies_out
                                       : &counts.copies);
    pst_lag_copy(mem->context, queue, to, from, size);
}

static void shadow_zero(struct pst_device_memory *mem, void *to, size_t size)
{
    pst_lag_zero(mem->context, to, size);
}

static void shadow_launch(struct pst_device_memory *mem,
                          const struct pst_kernel *kernel,
                          struct pst_call *frame)
{
    add_count(&counts.launches);
    pst_lag_launch(mem->context, kernel, frame);
}

static void shadow_run(struct pst_device_memory *mem, pst_task_fn fn,
                       const struct pst_task *task)
{
    add_count(&counts.tasks);
    pst_lag_run(mem->context, fn, task);
}

static void shadow_record(struct pst_device_memory *mem, enum pst_queue queue,
                          struct pst_event *event)
{
    pst_lag_record(mem->context, queue, event);
}

static void shadow_wait(struct pst_device_memory *mem, enum pst_queue queue,
                        const struct pst_event *event)
{
    pst_lag_wait(mem->context, queue, event);
}

static enum pst_status shadow_poll(struct pst_device_memory *mem,
                                   const struct pst_event *event)
{
    return pst_lag_poll(mem->context, event);
}

static double shadow_time(struct pst_device_memory *mem,
                          const struct pst_event *event)
{
    return pst_lag_time(mem->context, event);
}

static const struct pst_task_row tasks[] = {PST_CPU_TASKS(PST_CPU_TASK_ROW)};

const struct pst_device pst_device_shadow = {
    .name = "shadow",
    .space = PST_SPACE_DEVICE,
    .open = shadow_open,
    .close = shadow_close,
    .copy = shadow_copy,
    .zero = shadow_zero,
    .launch = shadow_launch,
    .run = shadow_run,
    .record = shadow_record,
    .wait = shadow_wait,
    .poll = shadow_poll,
    .time = shadow_time,
    .kernels = pst_cpu_kernels,
    .adapt = pst_cpu_adapt,
    .tasks = tasks,
    .n_tasks = PST_COUNT(tasks),
};
