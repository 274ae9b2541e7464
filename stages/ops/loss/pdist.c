// SPDX-License-Identifier: Apache-2.0
/* Distances between all pairs of rows: (N, M) -> (N (N - 1) / 2). */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/loss/distance.h"

static enum pst_status pdist_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    int64_t n;

    if (status != PST_OK)
        return status;
    if (x->rank != 2 || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "a floating matrix is wanted");
    if (!(c->args[1].f >= 0.0))
        return pst_infer_fail(c, "p is negative");
    if (x->size[0] > INT32_MAX)
        return pst_infer_fail(c, "too many rows");
    n = x->size[0] * (x->size[0] - 1) / 2;
    return pst_infer_set(c, 0, x->dtype, 1, &n);
}

static double element_at(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
}

static double pair_distance(const struct pst_operand *x, int64_t i, int64_t j,
                            double p)
{
    const int64_t m = x->meta->size[1];
    double sum = 0.0;

    for (int64_t k = 0; k < m; k++)
        sum = pst_distance_add(
            sum, element_at(x, i * m + k) - element_at(x, j * m + k), p);
    return pst_distance_of(sum, p);
}

static void pdist_ref(const struct pst_call *c)
{
    const int64_t n = c->in[0].meta->size[0];
    struct pst_operand *y = &c->out[0];
    int64_t pair = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            pst_store_f64(y->meta->dtype, y->data, pair++,
                          pair_distance(&c->in[0], i, j, c->args[1].f));
}

static void backward_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[1];
    const int64_t n = x->meta->size[0], m = x->meta->size[1];
    const double p = c->args[2].f;
    struct pst_operand *dx = &c->out[0];

    /* Sums the terms of each coordinate in double, in the order of the
     * pairs. */
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++) {
            double sum = 0.0;

            for (int64_t j = 0; j < n; j++) {
                const int64_t a = PST_MIN(i, j), b = PST_MAX(i, j);
                const int64_t pair = a * (2 * n - a - 1) / 2 + b - a - 1;

                if (j != i)
                    sum += element_at(&c->in[0], pair) *
                           pst_distance_slope(x->meta->dtype,
                                              element_at(x, i * m + k) -
                                                  element_at(x, j * m + k),
                                              element_at(&c->in[2], pair), p);
            }
            pst_store_f64(dx->meta->dtype, dx->data, i * m + k, sum);
        }
}

/* --- fast kernels: all operands f32, or all f64 --------------------------- */

static struct pst_distances describe_pairs(
    const struct pst_operand *x, double p,
    const struct pst_distance_loops *loops)
{
    return (struct pst_distances){
        .loops = loops,
        .dtype = x->meta->dtype,
        .batches = 1,
        .n = x->meta->size[0],
        .k = x->meta->size[0],
        .m = x->meta->size[1],
        .p = p,
        .x = x->data,
        .y = x->data,
        .half = true,
    };
}

#define RUN(isa)                                                               \
    static void pdist_##isa(const struct pst_call *c)                          \
    {                                                                          \
        const struct pst_distances d = describe_pairs(                         \
            &c->in[0], c->args[1].f, &pst_distance_loops_##isa);               \
                                                                               \
        pst_distance_forward(&d, c->pool, c->out[0].data);                     \
    }                                                                          \
    static void pdist_backward_##isa(const struct pst_call *c)                 \
    {                                                                          \
        const struct pst_distances d = describe_pairs(                         \
            &c->in[1], c->args[2].f, &pst_distance_loops_##isa);               \
                                                                               \
        pst_distance_backward(&d, c->pool, c->scratch, c->in[0].data,          \
                              c->in[2].data, c->out[0].data);                  \
    }
RUN(any)
PST_SIMD_IF_AVX2(RUN(avx2))
PST_SIMD_IF_AVX512(RUN(avx512))

/* --- rows of the registry ------------------------------------------------- */

static enum pst_status pdist_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(v, &pst_op_pdist_backward,
                     PST_ARGS(pst_v(g), v->node->args[0], v->node->args[1],
                              pst_v(pst_vjp_out(v, 0))));
    return pst_vjp_set(v, 0, g);
}

static const struct pst_kernel pdist_kernels[] = {
    PST_SIMD_ROWS("pdist_rows", pdist, PST_D(F32) | PST_D(F64), 0,
                  pst_distance_fits, NULL, 1e-6),
    {.name = "pdist_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = pdist_ref},
};
static const struct pst_kernel backward_kernels[] = {
    PST_SIMD_ROWS("pdist_backward_rows", pdist_backward,
                  PST_D(F32) | PST_D(F64), 0, pst_distance_fits,
                  pst_distance_scratch, 2e-6),
    {.name = "pdist_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = backward_ref},
};

const struct pst_op pst_op_pdist_forward = {
    .schema = "aten::_pdist_forward(Tensor self, float p=2.) -> Tensor",
    .infer = pdist_infer,
    .vjp = pdist_vjp,
};
PST_CPU_KERNELS(pdist_forward, pdist_kernels);

const struct pst_op pst_op_pdist_backward = {
    .schema = "penstock::pdist_backward(Tensor grad_output, Tensor self, float "
              "p, Tensor distances) -> Tensor",
    .infer = pst_infer_same_as_1,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(pdist_backward, backward_kernels);
