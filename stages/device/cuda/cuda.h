// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_CUDA_H
#define PENSTOCK_STAGES_DEVICE_CUDA_CUDA_H
/*
 * Memory, queues and events of a CUDA device: these functions are all members
 * of struct pst_device except `kernels`. Each struct pst_device_memory has one
 * context; both are used by one thread at a time.
 */
#include "stages/device/cuda/driver.h"
#include "stages/device/device.h"

/* Capacity of a queue's ring of events: this many of the newest events can be
 * waited for or timed. Recording one more waits until the oldest of them is
 * passed. */
#define PST_CUDA_EVENTS 32768

struct pst_cuda_queue {
    void *stream;
    void **events;   /* ring of PST_CUDA_EVENTS, created when first used */
    unsigned *bases; /* per event: number of the base event from which its time
                        is measured (event.c) */
    /* Numbers of the newest event that was recorded, and of the newest one
     * known to be passed; counted from 1. */
    uint64_t given, passed;
};

#define PST_CUDA_MODULES 4 /* maximum number of modules of a context */

/* The recording that is being made (graph.c). */
struct pst_cuda_capture {
    bool on;
    bool begun;     /* the stream of COMPUTE is captured */
    bool uses_step; /* a recorded kernel reads the step's number */
    char why[256];  /* why the work cannot be recorded; "": it can */
};

struct pst_cuda_context {
    const struct pst_cuda_driver *driver;
    void *context;
    int device;
    unsigned sms; /* multiprocessors */
    struct pst_cuda_queue queues[PST_N_QUEUES];
    struct pst_cuda_clock *clock;
    struct pst_cuda_products *products; /* NULL: without cuBLASLt (multiply.h)
                                         */
    void *modules[PST_CUDA_MODULES];    /* loaded modules, which contain the
                                           kernels */
    void **functions;    /* kernels, in the order of pst_cuda_code.names */
    unsigned char *base; /* first byte of the device's memory */
    /* Address of PST_CUDA_SPARE bytes of device memory, for kernels that work
     * in two steps; used in the order of the queue COMPUTE. */
    uint64_t spare;
    /* Address of the step's number, a uint64_t in device memory, from which
     * kernels draw random numbers, and its value; UINT64_MAX: unknown. */
    uint64_t step_at, step;
    /* Address of PST_CUDA_SLOTS blocks of device memory, of PST_CUDA_SLOT_BYTES
     * each, for the numbers of updates with a slot (struct pst_task). */
    uint64_t slots_at;
    struct pst_cuda_capture capture;
    /* Event of the default stream that the queues waited for last (guest.c);
     * NULL: none yet. */
    void *joined;
    /* The host's image of the device memory, for kernels that run on the host;
     * it uses physical memory only where it is touched. */
    unsigned char *image;
    size_t size; /* bytes of image */
    bool kept;   /* the memory is not freed: others may read it */
    int failed;  /* the first error of a driver call; 0: none */
    char failure[256];
};

#define PST_CUDA_SPARE      65536
#define PST_CUDA_SLOTS      64
#define PST_CUDA_SLOT_BYTES 64

/* Kernels that a context loads. */
struct pst_cuda_code {
    const void *const *images; /* fatbins, a module each */
    unsigned n_images;         /* PST_CUDA_MODULES at most */
    const char *const *names;  /* names of the kernels, each in one module */
    unsigned n;                /* number of kernels */
};

enum pst_status pst_cuda_probe(unsigned ordinal, struct pst_device_info *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_cuda_memory_open(unsigned ordinal, size_t size,
                                     const struct pst_cuda_code *code,
                                     struct pst_device_memory *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pst_cuda_memory_close(struct pst_device_memory *mem);
void pst_cuda_copy(struct pst_device_memory *mem, enum pst_queue queue,
                   void *to, const void *from, size_t size);
void pst_cuda_zero(struct pst_device_memory *mem, void *to, size_t size);
void pst_cuda_record(struct pst_device_memory *mem, enum pst_queue queue,
                     struct pst_event *event);
void pst_cuda_wait(struct pst_device_memory *mem, enum pst_queue queue,
                   const struct pst_event *event);
enum pst_status pst_cuda_poll(struct pst_device_memory *mem,
                              const struct pst_event *event);
double pst_cuda_time(struct pst_device_memory *mem,
                     const struct pst_event *event);
bool pst_cuda_reaches(struct pst_device_memory *mem,
                      const struct pst_device_memory *other);
void pst_cuda_fetch(struct pst_device_memory *mem, void *to,
                    const struct pst_device_memory *other, const void *from,
                    size_t size);
extern const struct pst_recorder pst_cuda_recorder;
extern const struct pst_guest pst_cuda_guest;
extern const struct pst_exporter pst_cuda_exporter;
/* Returns the address of the step's number in device memory, for the kernel
 * that is launched next. When the kernel runs, the number there is `step`; when
 * a recording replays the kernel, it is the number of the replaying step. */
const uint64_t *pst_cuda_step(struct pst_cuda_context *c, uint64_t step);
const char *pst_cuda_failure(const struct pst_device_memory *mem);

/* Makes the context current in this thread. Returns false if the context, or
 * the recording in progress, has failed: the caller then enqueues nothing. */
bool pst_cuda_enter(struct pst_cuda_context *c);
/* Returns true if error is 0, else records the failure. what: name of the
 * driver's function. */
bool pst_cuda_check(struct pst_cuda_context *c, int error, const char *what);
/* Records a failure, unless an earlier one is recorded. While the context makes
 * a recording, the failure is that of the recording only. error: other than 0.
 */
void pst_cuda_fail(struct pst_cuda_context *c, int error, const char *what,
                   const char *why);
/* Waits for all work in COMPUTE. Returns false after a failure. */
bool pst_cuda_sync(struct pst_cuda_context *c);

#endif
