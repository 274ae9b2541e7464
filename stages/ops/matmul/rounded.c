// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/pointwise/nd.h"

/* penstock.round_bf16: rounds elements to bf16, half to even, and stores them
 * as f32. The compiler inserts it before matmuls that prefer
 * PST_FORM_ROUNDED. */

static enum pst_status round_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_set(c, 0, x->dtype, x->rank, x->size);
    return status;
}

static void row_ref(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                    int64_t n)
{
    const struct pst_call *c = ctx;
    const enum pst_dtype dtype = c->out[0].meta->dtype;
    const int64_t to = nd->stride[0][nd->rank - 1];
    const int64_t from = nd->stride[1][nd->rank - 1];
    uint16_t half;

    for (int64_t i = 0; i < n; i++) {
        pst_store_f64(PST_BF16, &half, 0,
                      pst_load_f64(dtype, c->in[0].data, offset[1] + i * from));
        pst_store_f64(dtype, c->out[0].data, offset[0] + i * to,
                      pst_load_f64(PST_BF16, &half, 0));
    }
}

static void row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                int64_t n)
{
    const struct pst_call *c = ctx;

    if (nd->stride[0][nd->rank - 1] != 1 || nd->stride[1][nd->rank - 1] != 1)
        row_ref(ctx, nd, offset, n);
    else
        pst_simd_round_bf16_best(pst_cpu_isa())(
            n, (const float *)c->in[0].data + offset[1],
            (float *)c->out[0].data + offset[0]);
}

static void round_ref(const struct pst_call *c)
{
    const struct pst_meta *metas[2] = {c->out[0].meta, c->in[0].meta};
    struct pst_nd nd;

    pst_nd_init(&nd, 2, metas);
    if (nd.numel > 0)
        pst_nd_range(&nd, 0, nd.numel, row_ref, (void *)c);
}

static void round_f32(const struct pst_call *c)
{
    const struct pst_meta *metas[2] = {c->out[0].meta, c->in[0].meta};
    struct pst_nd nd;

    pst_nd_init(&nd, 2, metas);
    if (nd.numel > 0)
        pst_nd_run(&nd, c->pool, row, (void *)c);
}

static const struct pst_kernel round_kernels[] = {
    {.name = "round_bf16_f32",
     .dtypes = PST_D(F32),
     .flags = PST_K_STRIDED,
     .run = round_f32},
    {.name = "round_bf16_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = round_ref},
};

const struct pst_op pst_op_round_bf16 = {
    .schema = "penstock::round_bf16(Tensor self) -> Tensor",
    .infer = round_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(round_bf16, round_kernels);
