// SPDX-License-Identifier: Apache-2.0
/* Copies between memories of ranks of one process, on one GPU or on two of
 * which one can read the other. */
#include "stages/device/cuda/cuda.h"

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
    void *stream = c->queues[PST_QUEUE_IN].stream;

    if (size == 0 || !pst_cuda_enter(c))
        return;
    if (c->device == of->device)
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
