// SPDX-License-Identifier: Apache-2.0
/* The device "cpu", which computes in host memory. */
#include "stages/device/host.h"
#include "stages/ops/core/op.h"
#include "stages/ops/cpu/kernels.h"
#include "stages/ops/cpu/tasks.h"
#include "stages/ops/cpu/upcast.h"
#include "stages/ops/matmul/blas.h"
#include "stages/ops/matmul/gemm.h"

static void launch_kernel(struct pst_device_memory *mem,
                          const struct pst_kernel *kernel,
                          struct pst_call *frame)
{
    (void)mem;
    kernel->run(frame);
}

static void run_task(struct pst_device_memory *mem, pst_task_fn fn,
                     const struct pst_task *task)
{
    (void)mem;
    fn(task);
}

static const struct pst_task_row tasks[] = {PST_CPU_TASKS(PST_CPU_TASK_ROW)};

const struct pst_device pst_device_cpu = {
    .name = "cpu",
    .space = PST_SPACE_HOST,
    .open = pst_host_open,
    .touch = pst_host_touch,
    .close = pst_host_close,
    .copy = pst_host_copy,
    .zero = pst_host_zero,
    .record = pst_host_record,
    .wait = pst_host_wait,
    .poll = pst_host_poll,
    .time = pst_host_time,
    .launch = launch_kernel,
    .run = run_task,
    .kernels = pst_cpu_kernels,
    .describe = pst_products_describe,
    .tuned_for = pst_blas_tuned_for,
    .warm_up = pst_gemm_warm_up,
    .adapt = pst_cpu_adapt,
    .tasks = tasks,
    .n_tasks = PST_COUNT(tasks),
};
