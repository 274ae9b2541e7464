// SPDX-License-Identifier: Apache-2.0
/* sum and mean, with fast kernels for f32. */
#include "stages/ops/reduce/reduce.h"

#include "stages/ops/matmul/column_sum.h"
#include "stages/ops/reduce/ends.h"
#include "stages/ops/reduce/fold.h"
#include "stages/ops/reduce/whole.h"

static void sum_add(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        acc->a += x[i];
}

static void sum_add_i64(struct pst_acc *acc, int64_t n, const int64_t *x)
{
    uint64_t sum = (uint64_t)acc->whole;

    for (int64_t i = 0; i < n; i++)
        sum += (uint64_t)x[i];
    acc->whole = (int64_t)sum;
}

static double mean_end(const struct pst_acc *acc,
                       const struct pst_call *call PST_UNUSED)
{
    return acc->a / (double)acc->n;
}

static const struct pst_reduction sum_how = {sum_add, NULL, sum_add_i64};
static const struct pst_reduction mean_how = {sum_add, mean_end, NULL};

static void sum_ref(const struct pst_call *c)
{
    pst_reduce_run(c, PST_REDUCE_ALL, &sum_how);
}

static void sum_dim_ref(const struct pst_call *c)
{
    pst_reduce_run(c, 1, &sum_how);
}

static void mean_ref(const struct pst_call *c)
{
    pst_reduce_run(c, PST_REDUCE_ALL, &mean_how);
}

static void mean_dim_ref(const struct pst_call *c)
{
    pst_reduce_run(c, 1, &mean_how);
}

/* --- fast kernels: contiguous f32 --------------------------------------- */

static bool supports(const struct pst_call *c, int arg)
{
    struct pst_box b;

    return c->out[0].meta->dtype == PST_F32 && pst_reduce_box(c, arg, &b);
}

static bool supports_all(const struct pst_call *c)
{
    return supports(c, PST_REDUCE_ALL);
}

static bool supports_dim(const struct pst_call *c)
{
    return supports(c, 1);
}

struct sum {
    const struct pst_call *c;
    struct pst_box box;
    const struct pst_fold *fold;
    pst_column_sum_fn columns;
    float scale;
};

/* Pool function: computes a share of the results, each the sum of a contiguous
 * row. */
static void along_part(void *ctx, unsigned part, unsigned parts)
{
    const struct sum *s = ctx;
    const float *x = s->c->in[0].data;
    float *y = s->c->out[0].data;
    int64_t begin, end;

    pst_pool_share(s->box.outer, 1, part, parts, &begin, &end);
    for (int64_t o = begin; o < end; o++) {
        const float sum =
            (float)s->fold->along(s->box.rows, x + o * s->box.rows, 0.0f) *
            s->scale;

        y[o] = s->c->accumulate ? y[o] + sum : sum;
    }
}

/* Columns are divided among threads, so that each sum is in the order of its
 * rows. */
static void across_part(void *ctx, unsigned part, unsigned parts)
{
    const struct sum *s = ctx;
    const struct pst_box *b = &s->box;
    int64_t begin, end;

    pst_pool_share(b->cols, 16, part, parts, &begin, &end);
    for (int64_t o = 0; o < b->outer && begin < end; o++)
        s->columns(
            b->rows, end - begin, b->cols,
            (const float *)s->c->in[0].data + o * b->rows * b->cols + begin,
            (float *)s->c->out[0].data + o * b->cols + begin, s->c->accumulate);
}

static void sum_f32(const struct pst_call *c, int arg, bool mean,
                    const struct pst_fold *fold, pst_column_sum_fn columns)
{
    struct sum s = {.c = c, .fold = fold, .columns = columns, .scale = 1.0f};
    const bool serial = pst_meta_numel(c->in[0].meta) < PST_ND_SERIAL;
    float *y = c->out[0].data;

    (void)pst_reduce_box(c, arg, &s.box);
    if (s.box.cols == 1) {
        if (mean)
            s.scale = 1.0f / (float)s.box.rows;
        pst_pool_run(pst_pool_if(c->pool, !serial), along_part, &s);
        return;
    }
    pst_pool_run(pst_pool_if(c->pool, !serial), across_part, &s);
    for (int64_t i = 0; mean && i < s.box.outer * s.box.cols; i++)
        y[i] /= (float)s.box.rows;
}

#define RUN(suffix, set)                                                       \
    static void sum_f32_##suffix(const struct pst_call *c)                     \
    {                                                                          \
        sum_f32(c, PST_REDUCE_ALL, false, &pst_fold_sum_##suffix,              \
                pst_simd_column_sum_##suffix);                                 \
    }                                                                          \
    static void sum_dim_f32_##suffix(const struct pst_call *c)                 \
    {                                                                          \
        sum_f32(c, 1, false, &pst_fold_sum_##suffix,                           \
                pst_simd_column_sum_##suffix);                                 \
    }                                                                          \
    static void mean_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        sum_f32(c, PST_REDUCE_ALL, true, &pst_fold_sum_##suffix,               \
                pst_simd_column_sum_##suffix);                                 \
    }                                                                          \
    static void mean_dim_f32_##suffix(const struct pst_call *c)                \
    {                                                                          \
        sum_f32(c, 1, true, &pst_fold_sum_##suffix,                            \
                pst_simd_column_sum_##suffix);                                 \
    }
PST_SIMD_EACH(RUN)

/* Kernels for other strides, or for reduced dimensions that are not
 * adjacent. */
static double mean_of(const struct pst_call *c PST_UNUSED, double sum,
                      double m PST_UNUSED, double second PST_UNUSED, int64_t n)
{
    return pst_end_mean(sum, n);
}

PST_FOLD_ONE(sum, PST_REDUCE_ALL, sum, NULL)
PST_FOLD_ONE(sum_dim, 1, sum, NULL)
PST_FOLD_ONE(mean, PST_REDUCE_ALL, sum, mean_of)
PST_FOLD_ONE(mean_dim, 1, sum, mean_of)

/* Kernels for bool and i64. */
static bool sum_fits_whole(const struct pst_call *c)
{
    return pst_whole_fits_sum(c, PST_REDUCE_ALL);
}

static bool sum_dim_fits_whole(const struct pst_call *c)
{
    return pst_whole_fits_sum(c, 1);
}

static void sum_whole(const struct pst_call *c)
{
    pst_whole_run(c, PST_REDUCE_ALL, PST_WHOLE_SUM);
}

static void sum_dim_whole(const struct pst_call *c)
{
    pst_whole_run(c, 1, PST_WHOLE_SUM);
}

#define WHOLE(name)                                                            \
    {                                                                          \
#name "_whole", PST_ISA_ANY, PST_D(BOOL) | PST_D(I64), 0,              \
            name##_fits_whole, NULL, name##_whole, 0.0                         \
    }
#define REF(name)                                                              \
    {                                                                          \
#name "_ref", PST_ISA_ANY, PST_D_ANY,                                  \
            PST_K_STRIDED | PST_K_ACCUMULATE, NULL, NULL, name##_ref, 0.0      \
    }

static const struct pst_kernel sum_kernels[] = {
    PST_SIMD_ROWS("sum_f32", sum_f32, PST_D(F32), PST_K_ACCUMULATE,
                  supports_all, NULL, 1e-5),
    PST_FOLD_ROWS(sum, sum_fits, PST_K_ACCUMULATE, 1e-5),
    WHOLE(sum),
    REF(sum),
};
static const struct pst_kernel sum_dim_kernels[] = {
    PST_SIMD_ROWS("sum_dim_f32", sum_dim_f32, PST_D(F32), PST_K_ACCUMULATE,
                  supports_dim, NULL, 1e-5),
    PST_FOLD_ROWS(sum_dim, sum_dim_fits, PST_K_ACCUMULATE, 1e-5),
    WHOLE(sum_dim),
    REF(sum_dim),
};
static const struct pst_kernel mean_kernels[] = {
    PST_SIMD_ROWS("mean_f32", mean_f32, PST_D(F32), 0, supports_all, NULL,
                  1e-5),
    PST_FOLD_ROWS(mean, mean_fits, PST_K_ACCUMULATE, 1e-5),
    REF(mean),
};
static const struct pst_kernel mean_dim_kernels[] = {
    PST_SIMD_ROWS("mean_dim_f32", mean_dim_f32, PST_D(F32), 0, supports_dim,
                  NULL, 1e-5),
    PST_FOLD_ROWS(mean_dim, mean_dim_fits, PST_K_ACCUMULATE, 1e-5),
    REF(mean_dim),
};

/* --- inference, gradients, rows ------------------------------------------- */

/* Integers and bool are summed in i64 unless a dtype is given. */
static enum pst_status infer_sum_of(struct pst_infer *c, int arg, int keepdim,
                                    unsigned dtype)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    enum pst_dtype to;

    if (status != PST_OK)
        return status;
    to = pst_dtype_kind(x->dtype) == PST_KIND_FLOAT ? x->dtype : PST_I64;
    return pst_reduce_infer(c, 0, pst_infer_dtype(c, dtype, to), arg, keepdim);
}

static enum pst_status infer_sum(struct pst_infer *c)
{
    return infer_sum_of(c, PST_REDUCE_ALL, -1, 1);
}

static enum pst_status infer_sum_dim(struct pst_infer *c)
{
    return infer_sum_of(c, 1, 2, 3);
}

static enum pst_status infer_mean_of(struct pst_infer *c, int arg, int keepdim,
                                     unsigned dtype)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    enum pst_dtype to;

    if (status != PST_OK)
        return status;
    to = pst_infer_dtype(c, dtype, x->dtype);
    if (pst_dtype_kind(to) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants a floating tensor, got %s",
                              pst_dtype_name(to));
    return pst_reduce_infer(c, 0, to, arg, keepdim);
}

static enum pst_status infer_mean(struct pst_infer *c)
{
    return infer_mean_of(c, PST_REDUCE_ALL, -1, 1);
}

static enum pst_status infer_mean_dim(struct pst_infer *c)
{
    return infer_mean_of(c, 1, 2, 3);
}

static enum pst_status set_spread(struct pst_vjp *v, struct pst_value *g,
                                  int arg, int keepdim)
{
    g = pst_vjp_cast(v, g, pst_vjp_in(v, 0)->meta.dtype);
    return pst_vjp_set(v, 0, pst_reduce_spread(v, g, arg, keepdim));
}

static enum pst_status sum_vjp(struct pst_vjp *v)
{
    return set_spread(v, pst_vjp_grad(v, 0), PST_REDUCE_ALL, -1);
}

static enum pst_status sum_dim_vjp(struct pst_vjp *v)
{
    return set_spread(v, pst_vjp_grad(v, 0), 1, 2);
}

/* Divides the gradient before expanding it, which takes fewer divisions. */
static struct pst_value *mean_gradient(struct pst_vjp *v, int arg)
{
    return pst_vjp_div_scalar(v, pst_vjp_grad(v, 0),
                              (double)pst_reduce_count(v, arg));
}

static enum pst_status mean_vjp(struct pst_vjp *v)
{
    return set_spread(v, mean_gradient(v, PST_REDUCE_ALL), PST_REDUCE_ALL, -1);
}

static enum pst_status mean_dim_vjp(struct pst_vjp *v)
{
    return set_spread(v, mean_gradient(v, 1), 1, 2);
}

static double input_flops(const struct pst_node *node)
{
    return (double)pst_meta_numel(&node->args[0].value->meta);
}

const struct pst_op pst_op_sum = {
    .schema = "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    .infer = infer_sum,
    .vjp = sum_vjp,
    .flops = input_flops,
};
PST_CPU_KERNELS(sum, sum_kernels);

const struct pst_op pst_op_sum_dim_IntList = {
    .schema = "aten::sum.dim_IntList(Tensor self, int[1]? dim, "
              "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    .infer = infer_sum_dim,
    .vjp = sum_dim_vjp,
    .flops = input_flops,
};
PST_CPU_KERNELS(sum_dim_IntList, sum_dim_kernels);

const struct pst_op pst_op_mean = {
    .schema = "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    .infer = infer_mean,
    .vjp = mean_vjp,
    .flops = input_flops,
};
PST_CPU_KERNELS(mean, mean_kernels);

const struct pst_op pst_op_mean_dim = {
    .schema = "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, "
              "*, ScalarType? dtype=None) -> Tensor",
    .infer = infer_mean_dim,
    .vjp = mean_dim_vjp,
    .flops = input_flops,
};
PST_CPU_KERNELS(mean_dim, mean_dim_kernels);
