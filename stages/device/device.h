// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_DEVICE_H
#define PENSTOCK_STAGES_DEVICE_DEVICE_H
/*
 * Devices as rows: memory, copies, a clock, and tables of kernels. Whoever runs
 * steps touches tensors through these alone.
 *
 * Addresses: those of a device's memory are for its kernels and copies. Unless
 * its space is HOST, the host neither reads nor writes them; it has a copy of
 * the whole memory at addresses of its own (pst_device_host), which push and
 * pull keep alike where that is asked for.
 *
 * Order: calls enqueue work, which may still be under way when they return. The
 * work of one queue is done in its order; queues run beside each other, and
 * events order them: a queue waits for a point that another one has to reach,
 * the host asks whether it has. A failure shows at the next poll, and stays.
 *
 * Threads: one at a time for each memory. Rows are constant.
 */
#include "stages/base/host/cpu.h"
#include "stages/base/host/pool.h"
#include "stages/base/space.h"
#include "stages/graph/tensor.h"

struct pst_call;
struct pst_kernel;
struct pst_device;

/* --- kernels ------------------------------------------------------------ */

/* What a device has for one operator, best first. */
struct pst_kernels {
    const struct pst_kernel *at;
    unsigned n;
};

/* Numbers of an optimizer's step. */
struct pst_update {
    double lr, grad_scale, weight_decay;
    double momentum, dampening; /* sgd */
    bool nesterov, first;
    double beta1, beta2, eps, bias1, bias2; /* adamw */
};

/*
 * What the step does besides operators. Rows that a device must have, by what
 * they do with `n` elements of `dtype`:
 *
 *   seed    to[0] = number
 *   copy    to (of to_meta) = from[0] (of meta), whatever their strides
 *   sum     to = from[0] + from[1] + ..., added in this order
 *   sumsq   to[0], an f64, = the sum of squares of from[0], which is f32
 *   update.NAME  to, a parameter, moves by from[0], its gradient; from[1] ...
 *           are the optimizer's states, all f32. What would not be finite stays
 *           as it is; with number > 0 the last of from is two u64: the first
 *           number for which something stayed (0: none so far), and how much.
 * `to` may be one of `from`. Bits do not depend on the pool's threads.
 */
struct pst_task {
    enum pst_dtype dtype;
    int64_t n;
    void *to;
    void *const *from;
    unsigned n_from;
    double number;
    const struct pst_meta *meta, *to_meta;
    const struct pst_update *update;
    struct pst_pool *pool; /* may be NULL */
    enum pst_isa isa;
};
typedef void (*pst_task_fn)(const struct pst_task *task);
struct pst_task_row {
    const char *name;
    pst_task_fn run;
};

/* --- memory ------------------------------------------------------------- */

/* COMPUTE has kernels, tasks and copies within the memory; IN copies from the
 * host, OUT to it. */
enum pst_queue { PST_QUEUE_COMPUTE, PST_QUEUE_IN, PST_QUEUE_OUT, PST_N_QUEUES };

/* A point in the order of a queue. {0}: it was passed long ago. */
struct pst_event {
    uint64_t ticket; /* the device's own, as the next one */
    void *impl;
    double time; /* when it was passed; cpu */
};

/* Memory of a device, as one rank has it. */
struct pst_device_memory {
    const struct pst_device *device; /* NULL: none */
    unsigned char *base;             /* aligned to pages, of zeros */
    size_t size;
    /* From an address to the host's copy of it: 0 if they are the same. */
    ptrdiff_t to_host;
    void *context; /* the device's own */
};

struct pst_device {
    const char *name;
    enum pst_space space;
    /* Sets base, size and context. */
    enum pst_status (*open)(size_t size, struct pst_device_memory *ret,
                            struct pst_diag *diag);
    void (*close)(struct pst_device_memory *mem);
    /* IN: from the host's copy of the memory; OUT: to it; COMPUTE: within.
     * Ranges do not overlap. The host's end is the device's until the copy is
     * done. */
    void (*copy)(struct pst_device_memory *mem, enum pst_queue queue, void *to,
                 const void *from, size_t size);
    /* These three: COMPUTE. */
    void (*zero)(struct pst_device_memory *mem, void *to, size_t size);
    /* The frame's addresses are the memory's. It may be changed; the caller may
     * change it and its operands when the call returns. */
    void (*launch)(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, struct pst_call *frame);
    /* So it is with a task, its list of addresses, metas and update. */
    void (*run)(struct pst_device_memory *mem, pst_task_fn fn,
                const struct pst_task *task);
    /* Behind what the queue has so far. The event is overwritten. */
    void (*record)(struct pst_device_memory *mem, enum pst_queue queue,
                   struct pst_event *event);
    /* The queue, not the host, waits before whatever it is given later. */
    void (*wait)(struct pst_device_memory *mem, enum pst_queue queue,
                 const struct pst_event *event);
    /* PST_AGAIN, PST_OK, or PST_ERR_DEVICE: some work has failed. */
    enum pst_status (*poll)(struct pst_device_memory *mem,
                            const struct pst_event *event);
    /* Seconds of pst_now()'s clock at which it was passed; after poll. */
    double (*time)(struct pst_device_memory *mem,
                   const struct pst_event *event);
    /* By enum pst_op_order (stages/ops/core/order.h); NULL: it has none. */
    const struct pst_kernels *const *kernels;
    /* A kernel that serves a call of 16-bit operands better than the reference,
     * the last of `kernels`: NULL if there is none. It may set call->inner. The
     * member is NULL: the device has no such kernels. */
    const struct pst_kernel *(*adapt)(const struct pst_kernels *kernels,
                                      struct pst_call *call, enum pst_isa isa);
    const struct pst_task_row *tasks;
    unsigned n_tasks;
};

/* stages/ops/cpu/: this processor; what engines take that name no device. */
extern const struct pst_device pst_device_cpu;
const struct pst_device *pst_device_default(void);

/* PST_ERR_UNSUPPORTED that names device and task if it has no such row. */
enum pst_status pst_device_task(const struct pst_device *device,
                                const char *name, pst_task_fn *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Also makes the host's copy, which takes memory where it is used only. */
enum pst_status pst_device_open(const struct pst_device *device, size_t size,
                                struct pst_device_memory *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Also of {0}. */
void pst_device_close(struct pst_device_memory *mem);

/* Where the host finds its copy of the bytes at that address. */
static inline void *pst_device_host(const struct pst_device_memory *mem,
                                    const void *at)
{
    return (unsigned char *)at + mem->to_host;
}

/* Copies from the host's copy to the device, behind kernels that were launched
 * before and ahead of those to come. The host leaves its copy alone until *done
 * is passed. */
void pst_device_put(struct pst_device_memory *mem, void *at, size_t size,
                    struct pst_event *done);
/* Copies to the host, behind kernels that were launched before; who launches
 * one that writes there again waits for *done. */
void pst_device_get(struct pst_device_memory *mem, const void *at, size_t size,
                    struct pst_event *done);
/* The host waits. PST_OK or PST_ERR_DEVICE. */
enum pst_status pst_device_await(struct pst_device_memory *mem,
                                 const struct pst_event *event);
void pst_device_push_wait(struct pst_device_memory *mem, void *at, size_t size);
void pst_device_pull_wait(struct pst_device_memory *mem, const void *at,
                          size_t size);

/* The device gets what the host has written there; waits. */
static inline void pst_device_push(struct pst_device_memory *mem, void *at,
                                   size_t size)
{
    if (mem->to_host != 0)
        pst_device_push_wait(mem, at, size);
}

/* The host gets what the device has there; waits. Returns where it is read. */
static inline void *pst_device_pull(struct pst_device_memory *mem,
                                    const void *at, size_t size)
{
    if (mem->to_host != 0)
        pst_device_pull_wait(mem, at, size);
    return pst_device_host(mem, at);
}

#endif
