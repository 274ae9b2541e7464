// SPDX-License-Identifier: Apache-2.0
/* Copies between the memories of ranks of one host, on one GPU or on two GPUs
 * of which one can read the other. The ranks are in one process or, by CUDA
 * IPC, in several. */
#include "stages/device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pst_cuda_reaches(struct pst_device_memory *mem,
                      const struct pst_device_memory *other)
{
    struct pst_cuda_context *c = mem->context;
    const struct pst_cuda_context *from = other->context;
    int can = 0, error;

    if (mem->device != other->device || !pst_cuda_enter(c))
        return false;
    if (c->device == from->device)
        return true;
    if (c->driver->can_access(&can, c->device, from->device) != 0 || can == 0)
        return false;
    error = c->driver->enable_access(from->context, 0);
    return error == 0 || error == PST_CUDA_HAS_ACCESS;
}

void pst_cuda_fetch(struct pst_device_memory *mem, void *to,
                    const struct pst_device_memory *other, const void *from,
                    size_t size)
{
    struct pst_cuda_context *c = mem->context;
    const struct pst_cuda_context *of = other->context;
    /* Memory of another process is mapped in this context. */
    const bool within = other->foreign || c->device == of->device;
    void *stream = c->queues[PST_QUEUE_IN].stream;

    if (size == 0 || !pst_cuda_enter(c))
        return;
    if (within)
        (void)pst_cuda_check(c,
                             c->driver->copy_within(
                                 (uintptr_t)to, (uintptr_t)from, size, stream),
                             "cuMemcpyDtoDAsync");
    else
        (void)pst_cuda_check(c,
                             c->driver->copy_peer((uintptr_t)to, c->context,
                                                  (uintptr_t)from, of->context,
                                                  size, stream),
                             "cuMemcpyPeerAsync");
}

/* --- memory of other processes -------------------------------------------- */

_Static_assert(sizeof(struct pst_cuda_handle) ==
                   sizeof(((struct pst_exported *)0)->handle),
               "a handle has another size");

/* Returns true if error is 0, else writes a message to `why`. Unlike
 * pst_cuda_check, does not make the context fail. */
static bool accept(const struct pst_cuda_context *c, int error,
                   const char *what, char *why, size_t size)
{
    char text[120];

    if (error == 0)
        return true;
    pst_cuda_explain(c->driver, error, text, sizeof(text));
    (void)snprintf(why, size, "%s: %s", what, text);
    return false;
}

/* True if the driver has the functions of CUDA IPC and the environment does not
 * turn them off; else writes to `why`. */
static bool has_ipc(const struct pst_cuda_context *c, char *why, size_t size)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *wanted = getenv("PENSTOCK_CUDA_IPC");
    const bool refused = wanted != NULL && strcmp(wanted, "0") == 0;

    if (!refused && c->driver->ipc_export != NULL &&
        c->driver->ipc_open != NULL && c->driver->ipc_close != NULL)
        return true;
    (void)snprintf(why, size, "%s",
                   refused ? "PENSTOCK_CUDA_IPC=0"
                           : "the CUDA driver has no cuIpcGetMemHandle");
    return false;
}

static bool give(struct pst_device_memory *mem, struct pst_exported *ret,
                 char *why, size_t size)
{
    struct pst_cuda_context *c = mem->context;
    struct pst_cuda_handle handle;

    if (!has_ipc(c, why, size) ||
        !accept(c, c->driver->context_set(c->context), "cuCtxSetCurrent", why,
                size) ||
        !accept(c, c->driver->ipc_export(&handle, (uintptr_t)mem->base),
                "cuIpcGetMemHandle", why, size))
        return false;
    memcpy(ret->handle, handle.bytes, sizeof(handle.bytes));
    ret->size = mem->size;
    return true;
}

static bool open_foreign(struct pst_device_memory *mem,
                         const struct pst_exported *from,
                         struct pst_device_memory *ret, char *why, size_t size)
{
    struct pst_cuda_context *c = mem->context;
    struct pst_cuda_handle handle;
    uint64_t at = 0;

    memcpy(handle.bytes, from->handle, sizeof(handle.bytes));
    if (!accept(c, c->driver->context_set(c->context), "cuCtxSetCurrent", why,
                size) ||
        !accept(c, c->driver->ipc_open(&at, handle, PST_CUDA_IPC_ANY_GPU),
                "cuIpcOpenMemHandle", why, size))
        return false;
    *ret = (struct pst_device_memory){
        .device = mem->device,
        .base = (unsigned char *)(uintptr_t)at, // NOLINT
        .size = from->size,
        .foreign = true};
    return true;
}

static bool close_foreign(struct pst_device_memory *mem,
                          struct pst_device_memory *foreign)
{
    struct pst_cuda_context *c = mem->context;
    const uint64_t at = (uintptr_t)foreign->base;

    *foreign = (struct pst_device_memory){0};
    return c->driver->context_set(c->context) == 0 &&
           c->driver->ipc_close(at) == 0;
}

static void keep(struct pst_device_memory *mem)
{
    ((struct pst_cuda_context *)mem->context)->kept = true;
}

const struct pst_exporter pst_cuda_exporter = {
    .give = give, .open = open_foreign, .close = close_foreign, .keep = keep};
