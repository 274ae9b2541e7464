// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/on_device.h"

#include <stdio.h>
#include <string.h>

#include "stages/ops/cuda/cuda.h"
#include "tests/test.h"

#define MOST  1200
#define ALIGN 256

int on_device_open(struct pst_device_memory *ret, size_t size)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) == PST_OK &&
        pst_device_open(&pst_device_cuda, 0, size, ret, &diag) == PST_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", diag.text);
    return -1;
}

struct placed {
    const struct on_device_block *blocks;
    size_t offset[MOST];
    unsigned n;
};

static void place_blocks(struct placed *p, const struct pst_device_memory *mem)
{
    size_t at = ALIGN;

    assert_true(p->n <= MOST);
    for (unsigned i = 0; i < p->n; i++) {
        p->offset[i] = at;
        at += (p->blocks[i].size + 2 * ALIGN - 1) / ALIGN * ALIGN;
    }
    assert_true(at <= mem->size);
}

/* Maps an address of the host to the device. */
static void *device_address(const struct placed *p,
                            const struct pst_device_memory *mem, const void *at)
{
    for (unsigned i = 0; at != NULL && i < p->n; i++) {
        const unsigned char *begin = p->blocks[i].at;
        const ptrdiff_t off = (const unsigned char *)at - begin;

        if (begin != NULL && off >= 0 && (size_t)off <= p->blocks[i].size)
            return mem->base + p->offset[i] + off;
    }
    assert_null(at);
    return NULL;
}

static void copy_to_device(const struct placed *p,
                           struct pst_device_memory *mem)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->blocks[i].at != NULL && p->blocks[i].size > 0) {
            unsigned char *to = mem->base + p->offset[i];

            memcpy(pst_device_host(mem, to), p->blocks[i].at,
                   p->blocks[i].size);
            pst_device_push(mem, to, p->blocks[i].size);
        }
}

static void copy_from_device(const struct placed *p,
                             struct pst_device_memory *mem)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->blocks[i].at != NULL && p->blocks[i].size > 0)
            memcpy(p->blocks[i].at,
                   pst_device_pull(mem, mem->base + p->offset[i],
                                   p->blocks[i].size),
                   p->blocks[i].size);
}

const char *on_device_try(struct pst_device_memory *mem,
                          const struct pst_kernel *kernel,
                          const struct pst_call *call,
                          const struct on_device_block *blocks, unsigned n)
{
    struct placed p = {.blocks = blocks, .n = n};
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call frame = *call;
    struct pst_event none = {0};

    place_blocks(&p, mem);
    copy_to_device(&p, mem);
    for (unsigned i = 0; i < call->n_in; i++)
        in[i] = (struct pst_operand){device_address(&p, mem, call->in[i].data),
                                     call->in[i].meta};
    for (unsigned i = 0; i < call->n_out; i++)
        out[i] = (struct pst_operand){
            device_address(&p, mem, call->out[i].data), call->out[i].meta};
    frame.in = in;
    frame.out = out;
    frame.scratch = device_address(&p, mem, call->scratch);
    frame.fault = device_address(&p, mem, call->fault);
    mem->device->launch(mem, kernel, &frame);
    copy_from_device(&p, mem);
    if (mem->device->poll(mem, &none) != PST_ERR_DEVICE)
        return NULL;
    return mem->device->failure != NULL ? mem->device->failure(mem)
                                        : "the device has failed";
}

void on_device_run(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, const struct pst_call *call,
                   const struct on_device_block *blocks, unsigned n)
{
    const char *failure = on_device_try(mem, kernel, call, blocks, n);

    if (failure != NULL)
        fail_msg("%s: %s", kernel->name, failure);
}
