// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/fallback.h"

/* Maps a device address into the image; NULL stays NULL. */
static void *image_of(struct pst_cuda_context *c, const void *at)
{
    return at == NULL ? NULL : c->image + ((const unsigned char *)at - c->base);
}

/* The reverse of image_of(). */
static void *device_of(struct pst_cuda_context *c, const void *at)
{
    return at == NULL ? NULL : c->base + ((const unsigned char *)at - c->image);
}

static void copy_to_host(struct pst_cuda_context *c, const void *at,
                         size_t size)
{
    if (at != NULL && size > 0)
        (void)pst_cuda_check(
            c,
            c->driver->copy_out(image_of(c, at), (uintptr_t)at, size,
                                c->queues[PST_QUEUE_COMPUTE].stream),
            "cuMemcpyDtoHAsync");
}

static void copy_to_device(struct pst_cuda_context *c, void *at, size_t size)
{
    if (at != NULL && size > 0)
        (void)pst_cuda_check(
            c,
            c->driver->copy_in((uintptr_t)at, image_of(c, at), size,
                               c->queues[PST_QUEUE_COMPUTE].stream),
            "cuMemcpyHtoDAsync");
}

static size_t span_of(const struct pst_operand *x)
{
    return x->data != NULL && x->meta != NULL ? pst_meta_span(x->meta) : 0;
}

/* Copies all operands to the image. Results are copied, too: a kernel may add
 * to them, or leave the gaps of a strided one as they are. */
static void copy_operands_to_host(struct pst_cuda_context *c,
                                  const struct pst_call *frame)
{
    for (unsigned i = 0; i < frame->n_in; i++)
        copy_to_host(c, frame->in[i].data, span_of(&frame->in[i]));
    for (unsigned i = 0; i < frame->n_out; i++)
        copy_to_host(c, frame->out[i].data, span_of(&frame->out[i]));
    if (frame->fault != NULL)
        copy_to_host(c, frame->fault, sizeof(*frame->fault));
}

/* Replaces the addresses of operands, scratch and fault by those in the image,
 * or the reverse. */
static void map_addresses(struct pst_cuda_context *c, struct pst_call *frame,
                          void *(*map)(struct pst_cuda_context *, const void *))
{
    for (unsigned i = 0; i < frame->n_in; i++)
        frame->in[i].data = map(c, frame->in[i].data);
    for (unsigned i = 0; i < frame->n_out; i++)
        frame->out[i].data = map(c, frame->out[i].data);
    frame->scratch = map(c, frame->scratch);
    frame->fault = map(c, frame->fault);
}

void pst_cuda_call_on_host(struct pst_cuda_context *c,
                           const struct pst_kernel *kernel,
                           struct pst_call *frame)
{
    if (!pst_cuda_sync(c)) /* earlier calls may still read the image */
        return;
    copy_operands_to_host(c, frame);
    if (!pst_cuda_sync(c))
        return;
    map_addresses(c, frame, image_of);
    kernel->run(frame);
    /* Device addresses again: the caller may read the frame afterwards, as the
     * search for the first NaN does. */
    map_addresses(c, frame, device_of);
    for (unsigned i = 0; i < frame->n_out; i++)
        copy_to_device(c, frame->out[i].data, span_of(&frame->out[i]));
    if (frame->n_out == 0 && frame->n_in > 0) /* accumulate_grad */
        copy_to_device(c, frame->in[0].data, span_of(&frame->in[0]));
    if (frame->fault != NULL)
        copy_to_device(c, frame->fault, sizeof(*frame->fault));
}

void pst_cuda_task_on_host(const struct pst_task *task, pst_task_fn fn)
{
    struct pst_cuda_context *c = task->stream;
    const size_t size = (size_t)task->n * pst_dtype_size(task->dtype);
    void *from[PST_CUDA_TASK_OPERANDS];
    struct pst_task here = *task;

    if (task->n_from > PST_COUNT(from)) {
        (void)pst_cuda_check(c, 1, "a task has too many operands");
        return;
    }
    if (!pst_cuda_sync(c))
        return;
    for (unsigned i = 0; i < task->n_from; i++) {
        copy_to_host(c, task->from[i], size);
        from[i] = image_of(c, task->from[i]);
    }
    if (!pst_cuda_sync(c))
        return;
    here.from = from;
    here.to = image_of(c, task->to);
    fn(&here);
    copy_to_device(c, task->to, size);
}
