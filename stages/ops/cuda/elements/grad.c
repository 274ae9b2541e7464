// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/code/elements/grad.h"

#include "stages/ops/cuda/kernels.h"

static bool is_dense(const struct pst_cuda_accumulate *p)
{
    return p->nd.rank == 1 && p->nd.stride[0][0] == 1 &&
           p->nd.stride[1][0] == 1 && pst_cuda_is_wide(p->to) &&
           pst_cuda_is_wide(p->from);
}

static void accumulate_run(const struct pst_call *c)
{
    const struct pst_meta *const metas[2] = {c->in[0].meta, c->in[1].meta};
    struct pst_cuda_accumulate p = {.to = c->in[0].data, .from = c->in[1].data};
    struct pst_cuda_accumulate_dense dense;

    if (!pst_cuda_nd_make(2, metas, &p.nd))
        return;
    if (metas[0]->dtype == PST_F64) {
        pst_cuda_launch_n(c->stream, PST_FN_pst_grad_accumulate_f64, p.nd.numel,
                          &p);
    } else if (is_dense(&p)) {
        dense = (struct pst_cuda_accumulate_dense){p.to, p.from, p.nd.numel};
        pst_cuda_launch_n(c->stream, PST_FN_pst_grad_accumulate_dense_f32,
                          (dense.n + 3) / 4, &dense);
    } else {
        pst_cuda_launch_n(c->stream, PST_FN_pst_grad_accumulate_f32, p.nd.numel,
                          &p);
    }
}

static bool accumulate_supports(const struct pst_call *c)
{
    return c->in[0].meta->dtype == c->in[1].meta->dtype;
}

static const struct pst_kernel accumulate_kernels[] = {
    {"cuda_accumulate_grad", PST_ISA_ANY, PST_D(F32) | PST_D(F64),
     PST_K_STRIDED | PST_K_QUEUED, accumulate_supports, NULL, accumulate_run,
     0.0},
};
PST_CUDA_KERNELS(accumulate_grad, accumulate_kernels);
