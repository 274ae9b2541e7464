// SPDX-License-Identifier: Apache-2.0
/* The device "cuda". */
#include "stages/ops/cuda/cuda.h"

#include <stdlib.h>

#include "stages/device/cuda/cublaslt.h"
#include "stages/ops/cuda/elements/chain.h"
#include "stages/ops/cuda/elements/copies.h"
#include "stages/ops/cuda/elements/loops.h"
#include "stages/ops/cuda/fallback.h"
#include "stages/ops/cuda/kernels.h"
#include "stages/ops/cuda/tasks.h"

#if PST_HAVE_CUDA
/* The fatbins of stages/ops/cuda/code/ (code.S). */
#define X(module) extern const unsigned char pst_cuda_code_##module[];
#include "stages/ops/cuda/code/modules.def"
#undef X
#define X(module) pst_cuda_code_##module,
#else
#define X(module) "",
#endif
static const void *const images[] = {
#include "stages/ops/cuda/code/modules.def"
};
#undef X
_Static_assert(PST_COUNT(images) <= PST_CUDA_MODULES, "too many modules");

static const char *const names[] = {
#define X(kernel) #kernel,
#include "stages/ops/cuda/cuda.def"
#undef X
};

static enum pst_status cuda_open(unsigned ordinal, size_t size,
                                 struct pst_device_memory *ret,
                                 struct pst_diag *diag)
{
    const struct pst_cuda_code code = {images, PST_COUNT(images), names,
                                       PST_COUNT(names)};

    /* The driver that tests use (PENSTOCK_LIBCUDA) has its own kernels. */
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    if (!PST_HAVE_CUDA && getenv("PENSTOCK_LIBCUDA") == NULL)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "this penstock was built without nvcc "
                            "(-Dcuda=enabled): it has no kernels for GPUs");
    return pst_cuda_memory_open(ordinal, size, &code, ret, diag);
}

static void launch(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, struct pst_call *frame)
{
    if ((kernel->flags & PST_K_QUEUED) == 0) {
        pst_cuda_call_on_host(mem->context, kernel, frame);
        return;
    }
    frame->stream = mem->context;
    if (pst_cuda_is_loop(kernel))
        pst_cuda_loop_run(kernel, frame);
    else if (pst_cuda_is_copies(kernel))
        pst_cuda_copies_run(kernel, frame);
    else
        kernel->run(frame);
}

static void run(struct pst_device_memory *mem, pst_task_fn fn,
                const struct pst_task *task)
{
    struct pst_task here = *task;

    here.stream = mem->context;
    fn(&here);
}

static const struct pst_task_row tasks[] = {
    {"seed", pst_cuda_seed},
    {"copy", pst_cuda_copy_task},
    {"sum", pst_cuda_sum},
    {"sumsq", pst_cuda_sumsq},
    {"downcast", pst_cuda_downcast},
    {"upcast", pst_cuda_upcast},
    {"ema", pst_cuda_ema},
    {"update.sgd", pst_cuda_update_sgd},
    {"update.adamw", pst_cuda_update_adamw},
    {"update.adam", pst_cuda_update_adam},
    {"update.adamax", pst_cuda_update_adamax},
    {"update.lion", pst_cuda_update_lion},
    {"update.rmsprop", pst_cuda_update_rmsprop},
    {"update.adagrad", pst_cuda_update_adagrad},
    {"update.adadelta", pst_cuda_update_adadelta},
};

const struct pst_device pst_device_cuda = {
    .name = "cuda",
    .space = PST_SPACE_DEVICE,
    .probe = pst_cuda_probe,
    .open = cuda_open,
    .close = pst_cuda_memory_close,
    .copy = pst_cuda_copy,
    .zero = pst_cuda_zero,
    .launch = launch,
    .run = run,
    .record = pst_cuda_record,
    .wait = pst_cuda_wait,
    .poll = pst_cuda_poll,
    .failure = pst_cuda_failure,
    .recorder = &pst_cuda_recorder,
    .guest = &pst_cuda_guest,
    .reaches = pst_cuda_reaches,
    .exporter = &pst_cuda_exporter,
    .fetch = pst_cuda_fetch,
    .time = pst_cuda_time,
    .kernels = pst_cuda_kernels,
    .joins = pst_cuda_chain_joins,
    .fallback = &pst_device_cpu,
    .products = pst_cublaslt_text,
    .check_tf32 = pst_cublaslt_check_tf32,
    .tasks = tasks,
    .n_tasks = PST_COUNT(tasks),
};
