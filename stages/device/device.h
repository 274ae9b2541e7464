// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_DEVICE_H
#define PENSTOCK_STAGES_DEVICE_DEVICE_H
/*
 * A device is a table of functions: memory, copies, events and kernels. Code
 * that runs steps accesses tensors only through it.
 *
 * Addresses: device addresses are for the device's kernels and copies. Unless
 * the device's space is HOST, the host must not dereference them; it has a copy
 * of the whole memory at other addresses (pst_device_host), which push and pull
 * synchronize on request.
 *
 * Order: calls enqueue work and may return before it is done. Each queue
 * executes in order; different queues run concurrently and are ordered by
 * events: a queue waits for a point of another queue, the host polls for it. A
 * failure is reported by the next poll and by every later one.
 *
 * Threads: one at a time for each memory. Device tables are constant.
 */
#include "stages/base/host/cpu.h"
#include "stages/base/host/pool.h"
#include "stages/base/space.h"
#include "stages/graph/tensor.h"

struct pst_call;
struct pst_kernel;
struct pst_str;
struct pst_device;

/* --- kernels ------------------------------------------------------------ */

/* Kernels of a device for one operator, best first. */
struct pst_kernels {
    const struct pst_kernel *at;
    unsigned n;
};

/* Arguments of an optimizer update. */
struct pst_update {
    double lr, grad_scale, weight_decay;
    /* After grad_scale, elements of the gradient are limited to [-clip_value,
     * clip_value]; 0: no limit. Only the device cpu implements it. */
    double clip_value;
    double momentum;     /* sgd, rmsprop, muon */
    double dampening;    /* sgd */
    bool nesterov;       /* sgd, muon */
    bool first;          /* sgd, schedulefree: states are set, not updated */
    double beta1, beta2; /* adamw, adam, adamax, lion, lamb, schedulefree */
    double eps;          /* all but sgd and lion */
    /* adamw, adam, adamax, lamb, schedulefree: 1 - beta1^t, 1 - beta2^t */
    double bias1, bias2;
    double alpha;      /* rmsprop: weight of the old mean square */
    bool centered;     /* rmsprop: by the variance, not the mean square */
    double rho;        /* adadelta: weight of the old mean squares */
    double lr_divisor; /* adagrad: 1 + (t - 1) * lr_decay */
    unsigned ns_steps; /* muon: iterations of Newton-Schulz */
    bool match_rms;    /* muon: adjust_lr_fn is match_rms_adamw */
    /* adafactor: weight of the new squares, maximum relative step, minimum RMS
     * of a parameter, maximum RMS of an update. schedulefree: share is c */
    double share, most, eps2, clip;
};

/*
 * Arguments of a task: work of a step besides operators. Every device
 * implements these tasks, over `n` elements of `dtype`:
 *
 *   seed    to[0] = number
 *   copy    to (with to_meta) = from[0] (with meta), for any strides
 *   sum     to = from[0] + from[1] + ..., added in this order
 *   sumsq   to[0], an f64, = the sum of squares of from[0], which is f32
 *   update.NAME  updates the parameter `to` with the gradient from[0] and the
 *           optimizer's states from[1] ..., all f32. An element that would
 *           become non-finite keeps its value. With number > 0 the last of
 *           from is two u64: the first number for which an element was kept
 *           (0: none so far), and how many elements were kept. For optimizers
 *           that need the whole parameter (optim.h), `meta` is its meta, and
 *           the last of from but one is their scratch.
 *           With slot > 0, up to `slots` of the device's recorder, the update
 *           uses the numbers of *update of the newest task that had that slot
 *           and n = 0, not its own. A task with n = 0 only sets these numbers,
 *           and is not recorded: recorded updates can be replayed with others.
 *   ema     to += number * (from[0] - to), both f32; number 1: to = from[0]
 *
 * `to` may be one of `from`. Results do not depend on the number of threads in
 * the pool.
 */
struct pst_task {
    enum pst_dtype dtype;
    int64_t n;
    void *to;
    void *const *from;
    unsigned n_from;
    unsigned slot; /* update.NAME; 0: none */
    double number;
    const struct pst_meta *meta, *to_meta;
    const struct pst_update *update;
    struct pst_pool *pool; /* may be NULL */
    enum pst_isa isa;
    void *stream; /* as in struct pst_call */
};
typedef void (*pst_task_fn)(const struct pst_task *task);
struct pst_task_row {
    const char *name;
    pst_task_fn run;
};

/* --- memory ------------------------------------------------------------- */

/* COMPUTE runs kernels, tasks and copies within the memory; IN copies from the
 * host, OUT to the host. */
enum pst_queue { PST_QUEUE_COMPUTE, PST_QUEUE_IN, PST_QUEUE_OUT, PST_N_QUEUES };

/* A point in a queue. {0} counts as passed. */
struct pst_event {
    uint64_t ticket; /* owned by the device */
    void *impl;      /* owned by the device */
    double time;     /* pst_now() when it was passed; only cpu uses it */
};

/* Device memory of one rank. */
struct pst_device_memory {
    const struct pst_device *device; /* NULL: not open */
    unsigned char *base;             /* page-aligned, initially zero */
    size_t size;
    /* Offset from a device address to the host's copy of it; 0 if both are the
     * same. */
    ptrdiff_t to_host;
    unsigned ordinal; /* number of the device among those of its kind */
    void *context;    /* owned by the device */
    /* The memory belongs to another process (struct pst_exporter): only `fetch`
     * may read it, and only device, base and size are set. */
    bool foreign;
};

/* A device that was found on this host. */
struct pst_device_info {
    char name[64];       /* "NVIDIA H100 80GB HBM3" */
    uint64_t size, free; /* bytes of memory */
    unsigned number;     /* count of such devices that this process sees */
};

/*
 * Work of COMPUTE that is recorded once and then replayed by one call, with the
 * same addresses and numbers each time: a CUDA graph. Numbers that change from
 * step to step are not recorded, except the step's number by which kernels with
 * PST_K_REPLAYS draw random numbers, and those of updates with a slot.
 */
struct pst_recorder {
    /* Until `end`, zero, launch, run and copies within the memory record their
     * work and do not execute it. Other functions of the device must not be
     * called. */
    void (*begin)(struct pst_device_memory *mem);
    /* Returns an owned recording with `nodes` kernels and copies, or NULL if
     * the work cannot be recorded: nothing was executed, and *ret_why, valid
     * until the next call, says why ("cuStreamEndCapture: ..."). */
    void *(*end)(struct pst_device_memory *mem, uint64_t *ret_nodes,
                 const char **ret_why);
    /* Enqueues the recorded work on COMPUTE. step: as in struct pst_rng_key. */
    void (*replay)(struct pst_device_memory *mem, void *recording,
                   uint64_t step);
    /* Frees a recording; NULL is accepted. Call it before the memory is closed.
     */
    void (*free)(struct pst_device_memory *mem, void *recording);
    unsigned slots; /* largest slot of a task (struct pst_task) */
};

/* Alignment that operands outside of the device's memory need: with it, kernels
 * compute the same bits as from operands in that memory. */
#define PST_DEVICE_ALIGN 16

/*
 * Memory that the caller has on the same device, outside of the struct
 * pst_device_memory. Functions are called between steps unless their comment
 * says otherwise.
 */
struct pst_guest {
    /* Returns the current device of this thread (CUDA: its context); NULL:
     * none. Calls for any memory may change it; `restore` sets it again. */
    void *(*current)(void);
    void (*restore)(void *current);
    /* True if the first and the last of the bytes are memory of the device. A
     * false answer is no failure of the device. */
    bool (*owns)(struct pst_device_memory *mem, const void *at, size_t size);
    /* Makes all queues wait for the work that this process has enqueued so far
     * in the device's default stream (CUDA: the legacy one). */
    void (*join)(struct pst_device_memory *mem);
    /* Returns memory whose address does not change, or NULL on failure. */
    void *(*alloc)(struct pst_device_memory *mem, size_t size);
    /* Waits for all work in COMPUTE, IN and OUT, then frees the memory; NULL is
     * accepted. */
    void (*free)(struct pst_device_memory *mem, void *at);
};

/* Identifies a memory for other processes of this host. */
struct pst_exported {
    unsigned char handle[64]; /* owned by the device */
    uint64_t size;            /* bytes of the memory */
};

/*
 * Memory that processes of one host read of each other. A function that returns
 * false has written the reason to `why` (of `size` bytes); the device has not
 * failed then.
 */
struct pst_exporter {
    bool (*give)(struct pst_device_memory *mem, struct pst_exported *ret,
                 char *why, size_t size);
    /* Opens a memory that another process has exported by `give`. *ret lasts
     * until `close`, which must come before the owner frees the memory and
     * before mem is closed. */
    bool (*open)(struct pst_device_memory *mem, const struct pst_exported *from,
                 struct pst_device_memory *ret, char *why, size_t size);
    /* Closes a memory that `open` has opened. No copy from it may be in flight.
     * Returns false if the memory may still be open. */
    bool (*close)(struct pst_device_memory *mem,
                  struct pst_device_memory *foreign);
    /* Says that another process may still read the memory: after `close` its
     * bytes stay allocated until this process ends. */
    void (*keep)(struct pst_device_memory *mem);
};

struct pst_device {
    const char *name;
    enum pst_space space;
    /* Finds the device with number `ordinal`, from 0 on. PST_ERR_UNSUPPORTED if
     * there is none: diag says what was looked for and where. NULL: the device
     * always exists. */
    enum pst_status (*probe)(unsigned ordinal, struct pst_device_info *ret,
                             struct pst_diag *diag);
    /* Allocates `size` bytes of device memory; sets base, size and context of
     * *ret. */
    enum pst_status (*open)(unsigned ordinal, size_t size,
                            struct pst_device_memory *ret,
                            struct pst_diag *diag);
    /* Makes the operating system allocate all pages of the memory now: page
     * faults in the first step would make the other ranks wait. NULL: `open`
     * allocates all pages. */
    void (*touch)(struct pst_device_memory *mem, struct pst_pool *pool);
    void (*close)(struct pst_device_memory *mem);
    /* Enqueues a copy. IN: from the host; OUT: to the host; COMPUTE: within the
     * memory. Ranges must not overlap. The host must not touch its side until
     * the copy is done. */
    void (*copy)(struct pst_device_memory *mem, enum pst_queue queue, void *to,
                 const void *from, size_t size);
    /* zero, launch and run enqueue on COMPUTE. */
    void (*zero)(struct pst_device_memory *mem, void *to, size_t size);
    /* Enqueues a kernel. Addresses in the frame are device addresses. The call
     * may modify the frame; the caller may reuse the frame and its operands
     * after it returns. */
    void (*launch)(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, struct pst_call *frame);
    /* Enqueues a task. The caller may reuse the task with its addresses, metas
     * and update after the call returns. */
    void (*run)(struct pst_device_memory *mem, pst_task_fn fn,
                const struct pst_task *task);
    /* Sets the event to the point after all work enqueued in the queue so far.
     */
    void (*record)(struct pst_device_memory *mem, enum pst_queue queue,
                   struct pst_event *event);
    /* Lets the queue, not the host, wait for the event before later work. */
    void (*wait)(struct pst_device_memory *mem, enum pst_queue queue,
                 const struct pst_event *event);
    /* Returns PST_AGAIN, PST_OK, or PST_ERR_DEVICE if any work has failed. */
    enum pst_status (*poll)(struct pst_device_memory *mem,
                            const struct pst_event *event);
    /* Returns what has failed, in words ("cuLaunchKernel: ..."), after poll has
     * returned PST_ERR_DEVICE; NULL: unknown. The member may be NULL. */
    const char *(*failure)(const struct pst_device_memory *mem);
    /* Returns when the event was passed, in seconds of pst_now(); only after
     * poll has returned PST_OK. */
    double (*time)(struct pst_device_memory *mem,
                   const struct pst_event *event);
    /* Indexed by enum pst_op_order (stages/ops/core/order.h); NULL: no kernel.
     */
    const struct pst_kernels *const *kernels;
    /* Returns true if the device can run the call as a part of a chain (its
     * kernel of penstock.chain). Reads only metas and arguments of the call.
     * NULL: true for kernels with PST_K_ELEMENTWISE. */
    bool (*joins)(const struct pst_kernel *kernel, const struct pst_call *call);
    /* The device whose kernels run calls that `kernels` does not support: the
     * launch copies their operands to the host and the results back. NULL:
     * none. */
    const struct pst_device *fallback;
    /* Returns the library that computes matmuls, in words, or why there is
     * none. The member may be NULL. */
    const char *(*products)(void);
    /* Appends the libraries that kernels call: "oneDNN 2.6.3; OpenBLAS 0.3.21,
     * SkylakeX kernels". Only cpu has this and the next two functions. */
    void (*describe)(struct pst_str *out);
    /* Returns the processor for which OpenBLAS chose its kernels: "SkylakeX".
     * *ret_better: one whose kernels would be faster here; NULL: none. */
    const char *(*tuned_for)(const char **ret_better);
    /* Does the one-time work of the libraries for kernels with PST_K_COMPILES
     * (40 ms), so that ranks do it in parallel before the first step. Any
     * thread; later calls in a process do nothing. */
    void (*warm_up)(void);
    /* Returns a kernel that is better for 16-bit operands than the reference,
     * the last of `kernels`, or NULL. May set call->owner. The member may be
     * NULL. */
    const struct pst_kernel *(*adapt)(const struct pst_kernels *kernels,
                                      struct pst_call *call, enum pst_isa isa);
    const struct pst_task_row *tasks;
    unsigned n_tasks;
    const struct pst_recorder *recorder; /* NULL: it records nothing */
    /* NULL: the device's memory is the host's, or the device accesses only its
     * own memory. Otherwise kernels, the task "copy" and copies of IN and OUT
     * may read memory of the caller, and copies may write it. */
    const struct pst_guest *guest;
    /* Returns true if `fetch` can read the other memory, which a rank of this
     * process has on the same kind of device. Makes it accessible. NULL:
     * `fetch` can read no other memory. */
    bool (*reaches)(struct pst_device_memory *mem,
                    const struct pst_device_memory *other);
    const struct pst_exporter *exporter; /* NULL: no other process reads */
    /* Enqueues a copy on IN from the other memory, which `reaches` or `open`
     * has made accessible. */
    void (*fetch)(struct pst_device_memory *mem, void *to,
                  const struct pst_device_memory *other, const void *from,
                  size_t size);
    /* Checks that this host can run matmuls whose f32 operands are rounded to
     * TF32 (struct pst_call); diag says what is missing. NULL: the device has
     * no such matmuls. */
    enum pst_status (*check_tf32)(struct pst_diag *diag);
};

/* The CPU (stages/ops/cpu/), which is the default device of engines. */
extern const struct pst_device pst_device_cpu;
const struct pst_device *pst_device_default(void);

/* Sets *ret to the device's task of that name. PST_ERR_UNSUPPORTED names device
 * and task if there is none. */
enum pst_status pst_device_task(const struct pst_device *device,
                                const char *name, pst_task_fn *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Opens size bytes of device memory. Also allocates the host's copy, which uses
 * physical memory only where it is touched. */
enum pst_status pst_device_open(const struct pst_device *device,
                                unsigned ordinal, size_t size,
                                struct pst_device_memory *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Closes the memory; {0}, which is not open, is accepted. */
void pst_device_close(struct pst_device_memory *mem);

/* Returns the address of the host's copy of a device address. */
static inline void *pst_device_host(const struct pst_device_memory *mem,
                                    const void *at)
{
    return (unsigned char *)at + mem->to_host;
}

/* Enqueues a copy from the host's copy to the device, ordered after kernels
 * that were launched before and before later ones. The host must not touch its
 * copy until *done is passed. */
void pst_device_put(struct pst_device_memory *mem, void *at, size_t size,
                    struct pst_event *done);
/* Enqueues a copy from the memory of another rank that the device reaches,
 * ordered as by pst_device_put. The source must not change until *done is
 * passed. */
void pst_device_fetch(struct pst_device_memory *mem, void *at,
                      const struct pst_device_memory *other, const void *from,
                      size_t size, struct pst_event *done);
/* Enqueues a copy from the device to the host's copy, ordered after kernels
 * that were launched before. A later kernel that overwrites the source must
 * wait for *done. */
void pst_device_get(struct pst_device_memory *mem, const void *at, size_t size,
                    struct pst_event *done);
/* Blocks until the event is passed. Returns PST_OK or PST_ERR_DEVICE. */
enum pst_status pst_device_await(struct pst_device_memory *mem,
                                 const struct pst_event *event);
void pst_device_push_wait(struct pst_device_memory *mem, void *at, size_t size);
void pst_device_pull_wait(struct pst_device_memory *mem, const void *at,
                          size_t size);

/* Copies the bytes that the host has written to its copy of that address to the
 * device; blocks. */
static inline void pst_device_push(struct pst_device_memory *mem, void *at,
                                   size_t size)
{
    if (mem->to_host != 0)
        pst_device_push_wait(mem, at, size);
}

/* Copies from the device to the host's copy; blocks. Returns the address there.
 */
static inline void *pst_device_pull(struct pst_device_memory *mem,
                                    const void *at, size_t size)
{
    if (mem->to_host != 0)
        pst_device_pull_wait(mem, at, size);
    return pst_device_host(mem, at);
}

#endif
