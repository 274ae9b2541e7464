// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/device/cuda/event.h"
#include "stages/device/cuda/multiply.h"
#include "stages/device/host.h"

#define MIB 1048576.0

/* --- the device ----------------------------------------------------------- */

static enum pst_status refuse_device(const struct pst_cuda_driver *driver,
                                     unsigned ordinal, int error,
                                     struct pst_diag *diag)
{
    char text[256];

    pst_cuda_explain(driver, error, text, sizeof(text));
    return pst_diag_set(diag, PST_E_DEVICE_NONE,
                        "the GPU number %u cannot be used: %s", ordinal, text);
}

static enum pst_status find_device(const struct pst_cuda_driver *driver,
                                   unsigned ordinal, int *ret_device,
                                   unsigned *ret_number, struct pst_diag *diag)
{
    int number = 0, major = 0, minor = 0;
    int error = driver->device_count(&number);

    if (error == 0 && ordinal >= (unsigned)number)
        return pst_diag_set(
            diag, PST_E_DEVICE_NONE,
            "there is no GPU number %u: the CUDA driver shows %d of them to "
            "this process (nvidia-smi, CUDA_VISIBLE_DEVICES)",
            ordinal, number);
    if (error == 0)
        error = driver->device_get(ret_device, (int)ordinal);
    if (error == 0)
        error =
            driver->device_attribute(&major, PST_CUDA_ATTR_MAJOR, *ret_device);
    if (error == 0)
        error =
            driver->device_attribute(&minor, PST_CUDA_ATTR_MINOR, *ret_device);
    if (error != 0)
        return refuse_device(driver, ordinal, error, diag);
    *ret_number = (unsigned)number;
    if (10 * major + minor < PST_CUDA_LEAST_CAPABILITY)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "the GPU number %u has the compute capability "
                            "%d.%d, and %d.%d is needed",
                            ordinal, major, minor,
                            PST_CUDA_LEAST_CAPABILITY / 10,
                            PST_CUDA_LEAST_CAPABILITY % 10);
    return PST_OK;
}

enum pst_status pst_cuda_probe(unsigned ordinal, struct pst_device_info *ret,
                               struct pst_diag *diag)
{
    const struct pst_cuda_driver *driver;
    void *context = NULL;
    size_t unused = 0, size = 0;
    int device = 0;
    enum pst_status status = pst_cuda_open(&driver, diag);
    int error;

    *ret = (struct pst_device_info){0};
    if (status == PST_OK)
        status = find_device(driver, ordinal, &device, &ret->number, diag);
    if (status != PST_OK)
        return status;
    error = driver->device_name(ret->name, sizeof(ret->name), device);
    if (error == 0)
        error = driver->context_retain(&context, device);
    if (error != 0)
        return refuse_device(driver, ordinal, error, diag);
    error = driver->context_set(context);
    if (error == 0)
        error = driver->memory_info(&unused, &size);
    /* A context that was released must not stay the thread's current one. */
    (void)driver->context_set(NULL);
    (void)driver->context_release(device);
    if (error != 0)
        return refuse_device(driver, ordinal, error, diag);
    ret->free = unused;
    ret->size = size;
    return PST_OK;
}

/* --- errors --------------------------------------------------------------- */

void pst_cuda_fail(struct pst_cuda_context *c, int error, const char *what,
                   const char *why)
{
    if (c->capture.on) {
        if (c->capture.why[0] == '\0')
            (void)snprintf(c->capture.why, sizeof(c->capture.why), "%s: %s",
                           what, why);
        return;
    }
    if (c->failed != 0)
        return;
    c->failed = error;
    (void)snprintf(c->failure, sizeof(c->failure), "%s: %s", what, why);
}

bool pst_cuda_check(struct pst_cuda_context *c, int error, const char *what)
{
    char text[200];

    if (error != 0) {
        pst_cuda_explain(c->driver, error, text, sizeof(text));
        pst_cuda_fail(c, error, what, text);
    }
    return error == 0;
}

/* Every call makes the context current: another library, or closing another
 * memory, may have made another context current in this thread. */
bool pst_cuda_enter(struct pst_cuda_context *c)
{
    return c->failed == 0 && !(c->capture.on && c->capture.why[0] != '\0') &&
           pst_cuda_check(c, c->driver->context_set(c->context),
                          "cuCtxSetCurrent");
}

const char *pst_cuda_failure(const struct pst_device_memory *mem)
{
    const struct pst_cuda_context *c = mem->context;

    return c->failed != 0 ? c->failure : NULL;
}

bool pst_cuda_sync(struct pst_cuda_context *c)
{
    if (c->capture.on)
        pst_cuda_fail(c, 1, "the host", "a call waits for it");
    return pst_cuda_enter(c) &&
           pst_cuda_check(
               c, c->driver->stream_sync(c->queues[PST_QUEUE_COMPUTE].stream),
               "cuStreamSynchronize");
}

/* --- memory --------------------------------------------------------------- */

#define SLOTS_BYTES ((size_t)PST_CUDA_SLOTS * PST_CUDA_SLOT_BYTES)

static enum pst_status alloc_arena(struct pst_cuda_context *c, unsigned ordinal,
                                   size_t size, struct pst_device_memory *ret,
                                   struct pst_diag *diag)
{
    size_t unused = 0, total = 0;
    uint64_t at = 0;
    int error = c->driver->memory_info(&unused, &total);

    if (error == 0)
        error = c->driver->alloc(&at, size);
    ret->base = (unsigned char *)(uintptr_t)at; // NOLINT
    if (error == 0)
        error = c->driver->alloc(&c->spare, PST_CUDA_SPARE + SLOTS_BYTES +
                                                sizeof(uint64_t));
    c->slots_at = c->spare + PST_CUDA_SPARE;
    c->step_at = c->slots_at + SLOTS_BYTES;
    c->step = UINT64_MAX;
    if (error != 0 && error != PST_CUDA_NO_MEMORY)
        return refuse_device(c->driver, ordinal, error, diag);
    if (error != 0)
        return pst_diag_set(
            diag, PST_E_DEVICE_MEMORY,
            "the GPU number %u has %.1f MiB free, of %.1f, and the rank needs "
            "%.1f",
            ordinal, (double)unused / MIB, (double)total / MIB,
            (double)size / MIB);
    ret->size = size;
    c->size = size;
    c->base = ret->base;
    return PST_OK;
}

static enum pst_status open_context(struct pst_cuda_context *c,
                                    unsigned ordinal, struct pst_diag *diag)
{
    unsigned number = 0;
    int sms = 0, error;
    enum pst_status status = pst_cuda_open(&c->driver, diag);

    if (status == PST_OK)
        status = find_device(c->driver, ordinal, &c->device, &number, diag);
    if (status != PST_OK)
        return status;
    error = c->driver->context_retain(&c->context, c->device);
    if (error == 0)
        error = c->driver->context_set(c->context);
    if (error == 0)
        error = c->driver->device_attribute(&sms, PST_CUDA_ATTR_SMS, c->device);
    for (unsigned i = 0; error == 0 && i < PST_N_QUEUES; i++)
        error = c->driver->stream_create(&c->queues[i].stream,
                                         PST_CUDA_STREAM_NO_DEFAULT);
    c->sms = (unsigned)PST_MAX(sms, 1);
    return error == 0 ? pst_cuda_events_open(c, diag)
                      : refuse_device(c->driver, ordinal, error, diag);
}

/* Finds a kernel in the modules. Returns the driver's error, 0 for success. */
static int find_function(const struct pst_cuda_context *c, unsigned n_modules,
                         const char *name, void **ret)
{
    int error = 0;

    for (unsigned m = 0; m < n_modules; m++) {
        error = c->driver->module_function(ret, c->modules[m], name);
        if (error != PST_CUDA_NOT_FOUND)
            break;
    }
    return error;
}

static enum pst_status load_kernels(struct pst_cuda_context *c,
                                    const struct pst_cuda_code *code,
                                    struct pst_diag *diag)
{
    const char *what = "a module of kernels";
    char text[256];
    int error = 0;

    c->functions = calloc(PST_MAX(code->n, 1), sizeof(*c->functions));
    if (c->functions == NULL)
        return pst_diag_nomem(diag, code->n * sizeof(*c->functions));
    for (unsigned m = 0; error == 0 && m < code->n_images; m++)
        error = c->driver->module_load(&c->modules[m], code->images[m]);
    for (unsigned i = 0; error == 0 && i < code->n; i++) {
        what = code->names[i];
        error = find_function(c, code->n_images, what, &c->functions[i]);
    }
    if (error == 0)
        return PST_OK;
    pst_cuda_explain(c->driver, error, text, sizeof(text));
    return pst_diag_set(diag, PST_E_DEVICE_NONE,
                        "the CUDA driver does not load %s: %s", what, text);
}

enum pst_status pst_cuda_memory_open(unsigned ordinal, size_t size,
                                     const struct pst_cuda_code *code,
                                     struct pst_device_memory *ret,
                                     struct pst_diag *diag)
{
    struct pst_cuda_context *c = calloc(1, sizeof(*c));
    enum pst_status status;

    if (c == NULL)
        return pst_diag_nomem(diag, sizeof(*c));
    ret->context = c;
    status = open_context(c, ordinal, diag);
    if (status == PST_OK)
        status = load_kernels(c, code, diag);
    if (status == PST_OK)
        status = pst_cuda_multiply_open(c, diag);
    if (status == PST_OK)
        status = alloc_arena(c, ordinal, size, ret, diag);
    if (status == PST_OK) {
        c->image = pst_host_reserve(size);
        if (c->image == NULL)
            status = pst_diag_nomem(diag, size);
    }
    if (status == PST_OK) {
        pst_cuda_zero(ret, ret->base, size);
        if (!pst_cuda_sync(c))
            status = refuse_device(c->driver, ordinal, c->failed, diag);
    }
    if (status != PST_OK)
        pst_cuda_memory_close(ret);
    return status;
}

void pst_cuda_memory_close(struct pst_device_memory *mem)
{
    struct pst_cuda_context *c = mem->context;

    if (c == NULL)
        return;
    if (c->context != NULL) {
        (void)c->driver->context_set(c->context);
        for (unsigned i = 0; i < PST_N_QUEUES; i++)
            if (c->queues[i].stream != NULL)
                (void)c->driver->stream_sync(c->queues[i].stream);
        pst_cuda_multiply_close(c);
        pst_cuda_events_close(c);
        if (c->joined != NULL)
            (void)c->driver->event_destroy(c->joined);
        for (unsigned i = 0; i < PST_N_QUEUES; i++)
            if (c->queues[i].stream != NULL)
                (void)c->driver->stream_destroy(c->queues[i].stream);
        if (mem->base != NULL && !c->kept)
            (void)c->driver->free((uintptr_t)mem->base);
        if (c->spare != 0)
            (void)c->driver->free(c->spare);
        for (unsigned m = 0; m < PST_CUDA_MODULES; m++)
            if (c->modules[m] != NULL)
                (void)c->driver->module_unload(c->modules[m]);
        if (!c->kept)
            (void)c->driver->context_release(c->device);
    }
    pst_host_release(c->image, c->size);
    free(c->functions);
    free(c);
    *mem = (struct pst_device_memory){0};
}

/* --- copies --------------------------------------------------------------- */

void pst_cuda_copy(struct pst_device_memory *mem, enum pst_queue queue,
                   void *to, const void *from, size_t size)
{
    struct pst_cuda_context *c = mem->context;
    void *stream = c->queues[queue].stream;

    if (size == 0 || !pst_cuda_enter(c))
        return;
    switch (queue) {
    case PST_QUEUE_IN:
        (void)pst_cuda_check(
            c, c->driver->copy_in((uintptr_t)to, from, size, stream),
            "cuMemcpyHtoDAsync");
        break;
    case PST_QUEUE_OUT:
        (void)pst_cuda_check(
            c, c->driver->copy_out(to, (uintptr_t)from, size, stream),
            "cuMemcpyDtoHAsync");
        break;
    default:
        (void)pst_cuda_check(c,
                             c->driver->copy_within(
                                 (uintptr_t)to, (uintptr_t)from, size, stream),
                             "cuMemcpyDtoDAsync");
    }
}

void pst_cuda_zero(struct pst_device_memory *mem, void *to, size_t size)
{
    struct pst_cuda_context *c = mem->context;

    if (size > 0 && pst_cuda_enter(c))
        (void)pst_cuda_check(
            c,
            c->driver->set_bytes((uintptr_t)to, 0, size,
                                 c->queues[PST_QUEUE_COMPUTE].stream),
            "cuMemsetD8Async");
}
