// SPDX-License-Identifier: Apache-2.0
#include "stages/device/device.h"

#include <errno.h>
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

enum pst_status pst_device_open(const struct pst_device *device, size_t size,
                                struct pst_device_memory *ret,
                                struct pst_diag *diag)
{
    struct pst_device_memory mem = {.device = device};
    enum pst_status status = device->open(size, &mem, diag);

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
    if (mem->device == NULL)
        return;
    if (mem->to_host != 0)
        pst_host_release(pst_device_host(mem, mem->base), mem->size);
    mem->device->close(mem);
    *mem = (struct pst_device_memory){0};
}
