// SPDX-License-Identifier: Apache-2.0
/* dropout and native_dropout, which drop the same elements as on the CPU. */
#include "stages/ops/cuda/code/elements/drop.h"

#include "stages/ops/cuda/kernels.h"
#include "stages/ops/random/dropout.h"

static void run(const struct pst_call *c, double probability, uint8_t *keep)
{
    const struct pst_cuda_chance chance =
        pst_cuda_chance_of(c->stream, &c->rng, probability);
    const enum pst_dtype dtype = c->in[0].meta->dtype;
    struct pst_cuda_drop p = {.x = c->in[0].data,
                              .y = c->out[0].data,
                              .keep = keep,
                              .n = pst_meta_numel(c->in[0].meta),
                              .stream = chance.stream,
                              .kept = pst_dropout_scale(probability),
                              .limit = chance.limit};

    (void)pst_cuda_type_of(dtype, &p.type);
    pst_cuda_launch_n(c->stream,
                      dtype == PST_F32   ? PST_FN_pst_drop_f32
                      : dtype == PST_F64 ? PST_FN_pst_drop_f64
                                         : PST_FN_pst_drop_16,
                      (p.n + 3) / 4, &p);
}

static void dropout_run(const struct pst_call *c)
{
    run(c, c->args[1].f, NULL);
}

static void native_dropout_run(const struct pst_call *c)
{
    run(c, pst_dropout_trains(c->args) ? c->args[1].f : 0.0, c->out[1].data);
}

#define ROWS(id)                                                               \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#id "_cuda", PST_ISA_ANY, PST_D(F32) | PST_D(F64) | PST_D_16,         \
         PST_K_INPLACE_0 | PST_K_QUEUED | PST_K_REPLAYS, NULL, NULL, id##_run, \
         1e-7},                                                                \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)
ROWS(dropout);
ROWS(native_dropout);
