// SPDX-License-Identifier: Apache-2.0
#include "tests/run/watched.h"

#include "stages/device/host.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 600

struct watched watched;

struct range {
    size_t begin, end; /* range in the arena */
    bool write;
};

/* Ranges that one call may touch, and the arena's contents before it. */
struct watch {
    struct pst_device_memory *mem;
    struct range at[MAX_RANGES];
    size_t n;
    unsigned char *before;
};
static struct watch watch;

static void begin(struct pst_device_memory *mem)
{
    watch.mem = mem;
    watch.n = 0;
}

static void allow(const void *at, size_t size, bool write)
{
    const unsigned char *p = at;

    if (p == NULL || p < watch.mem->base ||
        p >= watch.mem->base + watch.mem->size || size == 0)
        return; /* memory of the host */
    if (watch.n == MAX_RANGES)
        abort();
    watch.at[watch.n].begin = (size_t)(p - watch.mem->base);
    watch.at[watch.n].end = watch.at[watch.n].begin + size;
    watch.at[watch.n].write = write;
    watched.reach = PST_MAX(watched.reach, watch.at[watch.n].end);
    watch.n++;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void invert(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] ^= 0xff;
}

/* Calls f for each gap between the ranges, in order. */
static void each_gap(void (*f)(size_t begin, size_t end, const char *who),
                     bool writable_only, const char *who)
{
    size_t at = 0;

    for (size_t i = 0; i < watch.n; i++) {
        if (writable_only && !watch.at[i].write)
            continue;
        if (watch.at[i].begin > at)
            f(at, watch.at[i].begin, who);
        at = PST_MAX(at, watch.at[i].end);
    }
    if (watch.mem->size > at)
        f(at, watch.mem->size, who);
}

static void hide(size_t from, size_t to, const char *who)
{
    (void)who;
    invert(watch.mem->base + from, to - from);
}

static void is_kept(size_t from, size_t to, const char *who)
{
    if (memcmp(watch.mem->base + from, watch.before + from, to - from) == 0)
        return;
    if (watched.writes_outside++ == 0) {
        size_t i = from;

        while (watch.mem->base[i] == watch.before[i])
            i++;
        (void)snprintf(watched.first, sizeof(watched.first),
                       "%s changes byte %zu of the arena, %zu behind what it "
                       "may write",
                       who, i, i - from);
    }
}

static void hide_the_rest(void)
{
    watch.before = malloc(watch.mem->size);
    if (watch.before == NULL || watch.mem->size > (size_t)64 << 20)
        abort();
    memcpy(watch.before, watch.mem->base, watch.mem->size);
    qsort(watch.at, watch.n, sizeof(watch.at[0]), by_begin);
    each_gap(hide, false, NULL);
    watched.calls++;
}

static void show_and_check(const char *who)
{
    each_gap(hide, false, NULL);
    each_gap(is_kept, true, who);
    free(watch.before);
}

static void launch(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, struct pst_call *frame)
{
    /* accumulate_grad writes to its first input. */
    const bool adds = strcmp(kernel->name, "accumulate_grad") == 0;

    begin(mem);
    for (unsigned i = 0; i < frame->n_in; i++)
        if (frame->in[i].meta != NULL)
            allow(frame->in[i].data, pst_meta_span(frame->in[i].meta),
                  adds && i == 0);
    for (unsigned i = 0; i < frame->n_out; i++)
        if (frame->out[i].meta != NULL)
            allow(frame->out[i].data, pst_meta_span(frame->out[i].meta), true);
    allow(frame->scratch, frame->scratch_size, true);
    if (frame->fault != NULL)
        allow(frame->fault, sizeof(*frame->fault), true);
    hide_the_rest();
    pst_device_cpu.launch(mem, kernel, frame);
    show_and_check(kernel->name);
}

static void run(struct pst_device_memory *mem, pst_task_fn fn,
                const struct pst_task *task)
{
    const size_t bytes = task->meta != NULL
                             ? pst_meta_span(task->meta)
                             : (size_t)task->n * pst_dtype_size(task->dtype);

    begin(mem);
    for (unsigned i = 0; i < task->n_from; i++)
        allow(task->from[i], bytes, task->update != NULL && i > 0);
    allow(task->to,
          task->to_meta != NULL ? pst_meta_span(task->to_meta) : bytes, true);
    hide_the_rest();
    pst_device_cpu.run(mem, fn, task);
    show_and_check("a task");
}

static void copy(struct pst_device_memory *mem, enum pst_queue queue, void *to,
                 const void *from, size_t size)
{
    begin(mem);
    allow(from, size, false);
    allow(to, size, true);
    hide_the_rest();
    pst_device_cpu.copy(mem, queue, to, from, size);
    show_and_check("a copy");
}

static void zero(struct pst_device_memory *mem, void *to, size_t size)
{
    begin(mem);
    allow(to, size, true);
    hide_the_rest();
    pst_device_cpu.zero(mem, to, size);
    show_and_check("a fill with zeros");
}

static enum pst_status open_memory(unsigned ordinal, size_t size,
                                   struct pst_device_memory *ret,
                                   struct pst_diag *diag)
{
    watched.reach = 0;
    return pst_host_open(ordinal, size, ret, diag);
}

const struct pst_device *watched_device(void)
{
    static struct pst_device device;

    device = pst_device_cpu;
    device.open = open_memory;
    device.copy = copy;
    device.zero = zero;
    device.launch = launch;
    device.run = run;
    return &device;
}
