// SPDX-License-Identifier: Apache-2.0
#include "stages/device/device.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "stages/device/host.h"

enum pst_status pst_device_task(const struct pst_device *device,
                                const char *name, pst_task_fn *ret,
                                struct pst_diag *diag)
{
    for (unsigned i = 0; i < device->n_tasks; i++) {
        if (strcmp(device->tasks[i].name, name) != 0)
            continue;
        *ret = device->tasks[i].run;
        return PST_OK;
    }
    return pst_diag_set(diag, PST_E_OP_NO_KERNEL,
                        "the device %s has no kernel \"%s\"", device->name,
                        name);
}

enum pst_status pst_device_open(const struct pst_device *device,
                                unsigned ordinal, size_t size,
                                struct pst_device_memory *ret,
                                struct pst_diag *diag)
{
    struct pst_device_memory mem = {.device = device, .ordinal = ordinal};
    enum pst_status status = device->open(ordinal, size, &mem, diag);

    if (status != PST_OK)
        return status;
    if (device->space != PST_SPACE_HOST) {
        unsigned char *copy = pst_host_reserve(size);

        if (copy == NULL) {
            status = pst_host_refused(size, errno, diag);
            device->close(&mem);
            return status;
        }
        mem.to_host = copy - mem.base;
    }
    *ret = mem;
    return PST_OK;
}

void pst_device_close(struct pst_device_memory *mem)
{
    void *copy;
    size_t size;

    if (mem->device == NULL)
        return;
    copy = mem->to_host != 0 ? pst_device_host(mem, mem->base) : NULL;
    size = mem->size;
    mem->device->close(mem); /* waits for copies from and to the host's copy */
    if (copy != NULL)
        pst_host_release(copy, size);
    *mem = (struct pst_device_memory){0};
}

void pst_device_put(struct pst_device_memory *mem, void *at, size_t size,
                    struct pst_event *done)
{
    const struct pst_device *device = mem->device;
    struct pst_event free;

    *done = (struct pst_event){0};
    if (mem->to_host == 0)
        return;
    device->record(mem, PST_QUEUE_COMPUTE, &free);
    device->wait(mem, PST_QUEUE_IN, &free);
    device->copy(mem, PST_QUEUE_IN, at, pst_device_host(mem, at), size);
    device->record(mem, PST_QUEUE_IN, done);
    device->wait(mem, PST_QUEUE_COMPUTE, done);
}

void pst_device_fetch(struct pst_device_memory *mem, void *at,
                      const struct pst_device_memory *other, const void *from,
                      size_t size, struct pst_event *done)
{
    const struct pst_device *device = mem->device;
    struct pst_event free;

    device->record(mem, PST_QUEUE_COMPUTE, &free);
    device->wait(mem, PST_QUEUE_IN, &free);
    device->fetch(mem, at, other, from, size);
    device->record(mem, PST_QUEUE_IN, done);
    device->wait(mem, PST_QUEUE_COMPUTE, done);
}

void pst_device_get(struct pst_device_memory *mem, const void *at, size_t size,
                    struct pst_event *done)
{
    const struct pst_device *device = mem->device;
    struct pst_event made;

    device->record(mem, PST_QUEUE_COMPUTE, &made);
    *done = made;
    if (mem->to_host == 0)
        return;
    device->wait(mem, PST_QUEUE_OUT, &made);
    device->copy(mem, PST_QUEUE_OUT, pst_device_host(mem, at), at, size);
    device->record(mem, PST_QUEUE_OUT, done);
}

enum pst_status pst_device_await(struct pst_device_memory *mem,
                                 const struct pst_event *event)
{
    enum pst_status status;

    while ((status = mem->device->poll(mem, event)) == PST_AGAIN)
        sched_yield();
    return status;
}

/* Ignores the status: a device failure persists, and the end of the step
 * reports it. */
void pst_device_push_wait(struct pst_device_memory *mem, void *at, size_t size)
{
    struct pst_event done;

    pst_device_put(mem, at, size, &done);
    (void)pst_device_await(mem, &done);
}

void pst_device_pull_wait(struct pst_device_memory *mem, const void *at,
                          size_t size)
{
    struct pst_event done;

    pst_device_get(mem, at, size, &done);
    (void)pst_device_await(mem, &done);
}
