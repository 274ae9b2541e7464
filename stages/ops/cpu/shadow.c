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
#include "stages/ops/cpu/tasks.h"
#include "stages/ops/cpu/upcast.h"

#define MAX_OPERANDS 1024

static struct {
    atomic_uint_fast64_t launches, tasks, copies_in, copies_out, copies;
} counts;

static uint64_t get(atomic_uint_fast64_t *n)
{
    return atomic_load_explicit(n, memory_order_relaxed);
}

static void count(atomic_uint_fast64_t *n)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

struct pst_shadow_counts pst_shadow_counts(void)
{
    return (struct pst_shadow_counts){
        get(&counts.launches), get(&counts.tasks), get(&counts.copies_in),
        get(&counts.copies_out), get(&counts.copies)};
}

bool pst_shadow_wanted(void)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *name = getenv("PENSTOCK_DEVICE");

    return name != NULL && strcmp(name, pst_device_shadow.name) == 0;
}

/* --- memory ------------------------------------------------------------- */

/* Addresses that nobody may use; the memory lies `shift` bytes from them. */
static enum pst_status shadow_open(size_t size, struct pst_device_memory *ret,
                                   struct pst_diag *diag)
{
    struct pst_device_memory real = {0};
    enum pst_status status = pst_host_open(size, &real, diag);
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
    ret->shift = real.base - ret->base;
    return PST_OK;
}

/* NULL stays what it is: an operand that is absent. */
static void *real(const struct pst_device_memory *mem, const void *at)
{
    return at == NULL ? NULL : (unsigned char *)at + mem->shift;
}

/* A line into the file that $PENSTOCK_SHADOW names: the host has touched
 * nothing, or the process would not be here. */
static void tell(void)
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
    pst_host_release(real(mem, mem->base), mem->size);
    pst_host_release(mem->base, mem->size);
    tell();
}

static void shadow_copy_in(struct pst_device_memory *mem, void *to,
                           const void *from, size_t size)
{
    count(&counts.copies_in);
    memcpy(real(mem, to), from, size);
}

static void shadow_copy_out(struct pst_device_memory *mem, void *to,
                            const void *from, size_t size)
{
    count(&counts.copies_out);
    memcpy(to, real(mem, from), size);
}

static void shadow_copy(struct pst_device_memory *mem, void *to,
                        const void *from, size_t size)
{
    count(&counts.copies);
    memcpy(real(mem, to), real(mem, from), size);
}

static void shadow_zero(struct pst_device_memory *mem, void *to, size_t size)
{
    memset(real(mem, to), 0, size);
}

/* --- kernels: those of cpu, on the real addresses ------------------------- */

static void shadow_launch(struct pst_device_memory *mem,
                          const struct pst_kernel *kernel,
                          struct pst_call *frame)
{
    count(&counts.launches);
    for (unsigned i = 0; i < frame->n_in; i++)
        frame->in[i].data = real(mem, frame->in[i].data);
    for (unsigned i = 0; i < frame->n_out; i++)
        frame->out[i].data = real(mem, frame->out[i].data);
    frame->scratch = real(mem, frame->scratch);
    frame->fault = real(mem, frame->fault);
    kernel->run(frame);
}

static void shadow_run(struct pst_device_memory *mem, pst_task_fn fn,
                       const struct pst_task *task)
{
    struct pst_task copy = *task;
    void *from[MAX_OPERANDS];

    count(&counts.tasks);
    copy.to = real(mem, task->to);
    copy.from = from;
    copy.n_from = PST_MIN(task->n_from, (unsigned)MAX_OPERANDS);
    for (unsigned i = 0; i < copy.n_from; i++)
        from[i] = real(mem, task->from[i]);
    fn(&copy);
}

static const struct pst_task_row tasks[] = {PST_CPU_TASKS(PST_CPU_TASK_ROW)};

const struct pst_device pst_device_shadow = {
    .name = "shadow",
    .space = PST_SPACE_DEVICE,
    .open = shadow_open,
    .close = shadow_close,
    .copy_in = shadow_copy_in,
    .copy_out = shadow_copy_out,
    .copy = shadow_copy,
    .zero = shadow_zero,
    .now = pst_host_now,
    .launch = shadow_launch,
    .run = shadow_run,
    .kernels = pst_cpu_kernels,
    .adapt = pst_cpu_adapt,
    .tasks = tasks,
    .n_tasks = PST_COUNT(tasks),
};
