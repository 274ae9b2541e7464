// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/softmax/softmax.h"

#include "stages/ops/cuda/code/layers/softmax.h"
#include "stages/ops/cuda/kernels.h"

#define KERNELS(type)                                                          \
    {                                                                          \
        PST_FN_pst_softmax_warp_##type, PST_FN_pst_softmax_block_##type,       \
            PST_FN_pst_softmax_columns_##type                                  \
    }

/* Kernels for f32, and for operands of several dtypes. */
static const struct {
    enum pst_cuda_fn warp, block, columns;
} kernels[] = {KERNELS(f32), KERNELS(16)};

static void launch(const struct pst_call *c, struct pst_cuda_softmax *p,
                   int64_t dim)
{
    const unsigned which = pst_cuda_all(c, PST_F32) ? 0 : 1;
    const struct pst_softmax_runs r = pst_softmax_runs_of(c->out[0].meta, dim);

    p->y = c->out[0].data;
    p->outer = r.outer;
    p->n = r.n;
    p->inner = r.inner;
    p->y_type = pst_cuda_operand_type(&c->out[0]);
    if (r.inner == 1)
        pst_cuda_launch_rows(c->stream, kernels[which].warp,
                             kernels[which].block, r.outer, r.n, p);
    else
        pst_cuda_launch_n(c->stream, kernels[which].columns, r.outer * r.inner,
                          p);
}

static void forward(const struct pst_call *c, enum pst_cuda_softmax_kind kind)
{
    struct pst_cuda_softmax p = {.x = c->in[0].data,
                                 .x_type = pst_cuda_operand_type(&c->in[0]),
                                 .kind = kind};

    launch(c, &p, c->args[1].i);
}

static void backward(const struct pst_call *c, enum pst_cuda_softmax_kind kind)
{
    struct pst_cuda_softmax p = {.g = c->in[0].data,
                                 .g_type = pst_cuda_operand_type(&c->in[0]),
                                 .x = c->in[1].data,
                                 .x_type = pst_cuda_operand_type(&c->in[1]),
                                 .kind = kind};

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

static bool supports_16(const struct pst_call *c)
{
    return pst_cuda_all_of(c, PST_D(F32) | PST_D_16);
}

#define KERNEL(id, bits, fn)                                                   \
    static const struct pst_kernel id##_kernels[] = {                          \
        {"cuda_" #id "_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED | (bits),   \
         supports, NULL, fn, 1e-5},                                            \
        {"cuda_" #id "_16", PST_ISA_ANY, PST_D(F32) | PST_D_16,                \
         PST_K_QUEUED | (bits), supports_16, NULL, fn, 1e-5}};                 \
    PST_CUDA_KERNELS(id, id##_kernels)

KERNEL(softmax_int, PST_K_INPLACE_0, plain_run);
KERNEL(_softmax, PST_K_INPLACE_0, plain_run);
KERNEL(_safe_softmax, PST_K_INPLACE_0, safe_run);
KERNEL(log_softmax_int, PST_K_INPLACE_0, log_run);
KERNEL(_log_softmax, PST_K_INPLACE_0, log_run);
KERNEL(softmax_backward, PST_K_INPLACE_0 | PST_K_INPLACE_1, plain_backward_run);
KERNEL(log_softmax_backward, PST_K_INPLACE_0 | PST_K_INPLACE_1,
       log_backward_run);
