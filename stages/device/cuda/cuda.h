// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_CUDA_H
#define PENSTOCK_STAGES_DEVICE_CUDA_CUDA_H
/*
 * Memory, queues and events of a CUDA device: all members of struct pst_device
 * but kernels. One context per struct pst_device_memory; like it, used by one
 * thread at a time.
 */
#include "stages/device/cuda/driver.h"
#include "stages/device/device.h"

/* Events of a queue that may be waited for or timed: the newest of them. A
 * record waits for the event before that number, if it has not passed yet. */
#define PST_CUDA_EVENTS 32768

struct pst_cuda_queue {
    void *stream;
    void **events;          /* PST_CUDA_EVENTS, made when first used */
    unsigned *bases;        /* number of the base of each event's time */
    uint64_t given, passed; /* tickets, counted from 1; passed: at least */
};

#define PST_CUDA_MODULES 4 /* at most */

struct pst_cuda_context {
    const struct pst_cuda_driver *driver;
    void *context;
    int device;
    unsigned sms; /* multiprocessors */
    struct pst_cuda_queue queues[PST_N_QUEUES];
    struct pst_cuda_clock *clock;
    void *modules[PST_CUDA_MODULES]; /* contain the kernels */
    void **functions;    /* the kernels, in the order of the code's names */
    unsigned char *base; /* first byte of the device's memory */
    /* Device memory for kernels that work in two steps, in the order of
     * COMPUTE: PST_CUDA_SPARE bytes. */
    uint64_t spare;
    uint64_t on_host; /* calls that ran on the host so far */
    /* The host's image of the memory for kernels that run on the host; the
     * address of its first byte. Physical memory only where it is touched. */
    unsigned char *image;
    size_t size;
    int failed; /* the first error of a driver call; 0: none */
    char failure[256];
};

#define PST_CUDA_SPARE 65536

/* Kernels that a context loads. */
struct pst_cuda_code {
    const void *const *images; /* fatbins, a module each */
    unsigned n_images;         /* at most PST_CUDA_MODULES */
    const char *const *names;  /* each in one of them */
    unsigned n;
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
const char *pst_cuda_failure(const struct pst_device_memory *mem);

/* Makes the context current in this thread. False after a failure: then no
 * more work is enqueued. */
bool pst_cuda_enter(struct pst_cuda_context *c);
/* Notes the first error; returns true if there is none. */
bool pst_cuda_check(struct pst_cuda_context *c, int error, const char *what);
/* Waits for everything in COMPUTE. */
bool pst_cuda_sync(struct pst_cuda_context *c);

#endif
