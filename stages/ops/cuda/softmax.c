// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/cuda/code/softmax.h"
#include "stages/ops/cuda/kernels.h"

static void launch(const struct pst_call *c, struct pst_cuda_softmax *p,
                   int64_t dim)
{
    const struct pst_softmax_runs r = pst_softmax_runs_of(c->out[0].meta, dim);

    p->y = c->out[0].data;
    p->outer = r.outer;
    p->n = r.n;
    p->inner = r.inner;
    if (r.inner == 1)
        pst_cuda_launch_rows(c->stream, PST_FN_pst_softmax_warp_f32,
                             PST_FN_pst_softmax_block_f32, r.outer, r.n, p);
    else
        pst_cuda_launch_n(c->stream, PST_FN_pst_softmax_columns_f32,
                          r.outer * r.inner, p);
}

static void forward(const struct pst_call *c, enum pst_cuda_softmax_kind kind)
{
    struct pst_cuda_softmax p = {.x = c->in[0].data, .kind = kind};

    launch(c, &p, c->args[1].i);
}

static void backward(const struct pst_call *c, enum pst_cuda_softmax_kind kind)
{
    struct pst_cuda_softmax p = {
        .g = c->in[0].data, .x = c->in[1].data, .kind = kind};

    launch(c, &p, c->args[2].i);
}

static void plain_run(const struct pst_call *c)
{
    forward(c, PST_CUDA_SOFTMAX);
}

static void log_run(const struct pst_call *c)
{
    forward(c, PST_CUDA_LOG_SOFTMAX);
}

static void safe_run(const struct pst_call *c)
{
    forward(c, PST_CUDA_SAFE_SOFTMAX);
}

static void plain_backward_run(const struct pst_call *c)
{
    backward(c, PST_CUDA_SOFTMAX);
}

static void log_backward_run(const struct pst_call *c)
{
    backward(c, PST_CUDA_LOG_SOFTMAX);
}

static bool supports(const struct pst_call *c)
{
    return pst_cuda_all(c, PST_F32);
}

#define KERNEL(id, bits, fn)                                                   \
    static const struct pst_kernel id##_kernels[] = {                          \
        {"cuda_" #id "_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED | (bits),   \
         supports, NULL, fn, 1e-5}};                                           \
    PST_CUDA_KERNELS(id, id##_kernels)

KERNEL(softmax_int, PST_K_INPLACE_0, plain_run);
KERNEL(_softmax, PST_K_INPLACE_0, plain_run);
KERNEL(_safe_softmax, PST_K_INPLACE_0, safe_run);
KERNEL(log_softmax_int, PST_K_INPLACE_0, log_run);
KERNEL(_log_softmax, PST_K_INPLACE_0, log_run);
KERNEL(softmax_backward, PST_K_INPLACE_0 | PST_K_INPLACE_1, plain_backward_run);
KERNEL(log_softmax_backward, PST_K_INPLACE_0 | PST_K_INPLACE_1,
       log_backward_run);
