// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/column_sum.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

/* penstock.column_sum: (..., kept) -> (kept), the sum over all but the last
 * `keep` dimensions. It computes gradients of biases. It is a separate operator
 * because it can add to the gradient's accumulator without a temporary. */

static enum pst_status column_sum_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    const int64_t keep = c->args[1].i;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (keep < 0 || keep > (int64_t)x->rank)
        return pst_infer_fail(c, "cannot keep %d of %u dimensions", (int)keep,
                              x->rank);
    return pst_infer_set(c, 0, x->dtype, (unsigned)keep,
                         x->size + (x->rank - keep));
}

static enum pst_status column_sum_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    return pst_vjp_set(v, 0, pst_vjp_expand_as(v, g, &pst_vjp_in(v, 0)->meta));
}

static void column_sum_ref(const struct pst_call *c)
{
    const struct pst_meta *x = c->in[0].meta;
    const int64_t cols = pst_meta_numel(c->out[0].meta);
    const int64_t rows = cols > 0 ? pst_meta_numel(x) / cols : 0;

    for (int64_t s = 0; s < cols; s++) {
        double sum = 0.0;

        for (int64_t r = 0; r < rows; r++)
            sum += pst_load_f64(x->dtype, c->in[0].data,
                                pst_meta_offset(x, r * cols + s));
        if (c->accumulate)
            sum += pst_load_f64(x->dtype, c->out[0].data, s);
        pst_store_f64(x->dtype, c->out[0].data, s, sum);
    }
}

struct sum {
    int64_t rows, cols;
    const struct pst_call *c;
    pst_column_sum_fn loop;
};

static void sum_part(void *ctx, unsigned part, unsigned parts)
{
    const struct sum *s = ctx;
    const int64_t size = (int64_t)pst_dtype_size(s->c->out[0].meta->dtype);
    int64_t begin, end;

    pst_pool_share(s->cols, 16, part, parts, &begin, &end);
    if (begin < end)
        s->loop(s->rows, end - begin, s->cols,
                (const char *)s->c->in[0].data + begin * size,
                (char *)s->c->out[0].data + begin * size, s->c->accumulate);
}

static void column_sum(const struct pst_call *c, pst_column_sum_fn loop)
{
    struct sum s = {
        .cols = pst_meta_numel(c->out[0].meta), .c = c, .loop = loop};

    if (s.cols == 0)
        return;
    s.rows = pst_meta_numel(c->in[0].meta) / s.cols;
    pst_pool_run(pst_pool_if(c->pool, s.rows * s.cols >= 32768), sum_part, &s);
}

#define RUN(suffix, set)                                                       \
    static void column_sum_f32_##suffix(const struct pst_call *c)              \
    {                                                                          \
        column_sum(c, pst_simd_column_sum_##suffix);                           \
    }                                                                          \
    static void column_sum_f64_##suffix(const struct pst_call *c)              \
    {                                                                          \
        column_sum(c, pst_simd_column_sum_f64_##suffix);                       \
    }
PST_SIMD_EACH(RUN)

static const struct pst_kernel column_sum_kernels[] = {
    PST_SIMD_ROWS("column_sum_f32", column_sum_f32, PST_D(F32),
                  PST_K_ACCUMULATE, NULL, NULL, 1e-5),
    PST_SIMD_ROWS("column_sum_f64", column_sum_f64, PST_D(F64),
                  PST_K_ACCUMULATE, NULL, NULL, 1e-12),
    {.name = "column_sum_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_ACCUMULATE | PST_K_STRIDED,
     .run = column_sum_ref},
};

const struct pst_op pst_op_column_sum = {
    .schema = "penstock::column_sum(Tensor self, int keep) -> Tensor",
    .infer = column_sum_infer,
    .vjp = column_sum_vjp,
};
PST_CPU_KERNELS(column_sum, column_sum_kernels);
