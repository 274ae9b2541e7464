// SPDX-License-Identifier: Apache-2.0
/* Memory of a GPU that the caller has allocated, in the same primary context.
 */
#include "stages/device/cuda/cuda.h"

static void *current(void)
{
    const struct pst_cuda_driver *driver;
    struct pst_diag diag;
    void *context = NULL;

    pst_diag_init(&diag);
    if (pst_cuda_open(&driver, &diag) != PST_OK ||
        driver->context_get(&context) != 0)
        return NULL;
    return context;
}

static void restore(void *context)
{
    const struct pst_cuda_driver *driver;
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_cuda_open(&driver, &diag) == PST_OK)
        (void)driver->context_set(context);
}

/* True if the byte is memory of the device. */
static bool is_of_device(const struct pst_cuda_context *c, uint64_t at)
{
    unsigned type = 0;
    int device = -1;

    return c->driver->pointer_attribute(&type, PST_CUDA_POINTER_TYPE, at) ==
               0 &&
           type == PST_CUDA_TYPE_DEVICE &&
           c->driver->pointer_attribute(&device, PST_CUDA_POINTER_DEVICE, at) ==
               0 &&
           device == c->device;
}

/* Checks only the first and the last byte: one tensor may extend over several
 * mappings. */
static bool is_guest_memory(struct pst_device_memory *mem, const void *at,
                            size_t size)
{
    struct pst_cuda_context *c = mem->context;
    const uint64_t first = (uintptr_t)at;

    return size > 0 && first <= UINT64_MAX - (size - 1) && pst_cuda_enter(c) &&
           is_of_device(c, first) && is_of_device(c, first + (size - 1));
}

/* Makes all queues wait for the default stream, which their streams do not do
 * by themselves (PST_CUDA_STREAM_NO_DEFAULT). */
static void join(struct pst_device_memory *mem)
{
    struct pst_cuda_context *c = mem->context;

    if (!pst_cuda_enter(c) ||
        (c->joined == NULL &&
         !pst_cuda_check(c, c->driver->event_create(&c->joined, 0),
                         "cuEventCreate")) ||
        !pst_cuda_check(c, c->driver->event_record(c->joined, NULL),
                        "cuEventRecord"))
        return;
    for (unsigned i = 0; i < PST_N_QUEUES; i++)
        if (!pst_cuda_check(
                c, c->driver->stream_wait(c->queues[i].stream, c->joined, 0),
                "cuStreamWaitEvent"))
            return;
}

static void *alloc(struct pst_device_memory *mem, size_t size)
{
    struct pst_cuda_context *c = mem->context;
    uint64_t at = 0;

    if (!pst_cuda_enter(c) || c->driver->alloc(&at, size) != 0)
        return NULL;
    return (void *)(uintptr_t)at; // NOLINT
}

static void free_memory(struct pst_device_memory *mem, void *at)
{
    struct pst_cuda_context *c = mem->context;

    if (at == NULL)
        return;
    (void)c->driver->context_set(c->context);
    for (unsigned i = 0; i < PST_N_QUEUES; i++)
        (void)c->driver->stream_sync(c->queues[i].stream);
    (void)c->driver->free((uintptr_t)at);
}

const struct pst_guest pst_cuda_guest = {.current = current,
                                         .restore = restore,
                                         .owns = is_guest_memory,
                                         .join = join,
                                         .alloc = alloc,
                                         .free = free_memory};
