// SPDX-License-Identifier: Apache-2.0
/* The operators of which batch, group and instance norm are composed. */
#include "stages/ops/core/rows.h"
#include "stages/ops/norm/columns.h"

/* Returns the dtype of statistics and sums. */
static enum pst_dtype stats_dtype(enum pst_dtype dtype)
{
    return dtype == PST_F64 ? PST_F64 : PST_F32;
}

/* --- inference ---------------------------------------------------------- */

/* Checks that argument i is (N, C, ...). */
static enum pst_status check_images(const struct pst_infer *c, unsigned i,
                                    const struct pst_meta **ret)
{
    enum pst_status status = pst_infer_tensor(c, i, ret);
    char text[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if ((*ret)->rank < 2 || (*ret)->size[1] < 1 ||
        pst_dtype_kind((*ret)->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "%s has no channels to normalise",
                              pst_meta_text(*ret, text));
    return PST_OK;
}

static enum pst_status stats_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    const int64_t groups = c->args[1].i;
    int64_t size[2] = {1, groups};
    enum pst_status status = check_images(c, 0, &x);
    char text[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (groups < 1 || x->size[1] % groups != 0)
        return pst_infer_fail(c, "%lld channels do not form %lld groups",
                              (long long)x->size[1], (long long)groups);
    if (!c->args[2].b)
        size[0] = x->size[0];
    if ((c->args[4].b || c->args[5].b) && pst_meta_numel(x) == size[0] * groups)
        return pst_infer_fail(
            c, "training needs more than one value per channel, %s has one",
            pst_meta_text(x, text));
    if (c->args[6].b && pst_meta_numel(x) == groups)
        return pst_infer_fail(
            c, "groups need more than one value in all samples, %s has one",
            pst_meta_text(x, text));
    for (unsigned k = 0; k < 3 && status == PST_OK; k++)
        status = pst_infer_set(c, k, stats_dtype(x->dtype), 2, size);
    return status;
}

/* Checks that argument i holds statistics (blocks, G) of images x. */
static enum pst_status check_stats(const struct pst_infer *c, unsigned i,
                                   const struct pst_meta *x)
{
    const struct pst_meta *m;
    enum pst_status status = pst_infer_tensor(c, i, &m);
    char text[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (m->rank != 2 || (m->size[0] != 1 && m->size[0] != x->size[0]) ||
        m->size[1] < 1 || x->size[1] % m->size[1] != 0 ||
        pst_dtype_kind(m->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "\"%s\" is %s", c->schema->args[i].name,
                              pst_meta_text(m, text));
    return PST_OK;
}

/* Checks that argument i, if given, has these sizes. */
static enum pst_status check_sizes(const struct pst_infer *c, unsigned i,
                                   unsigned rank, const int64_t *sizes)
{
    const struct pst_meta *m = pst_infer_in(c, i);
    const struct pst_meta want = pst_meta_make(PST_F32, rank, sizes);
    char text[PST_META_TEXT];

    if (m == NULL || (pst_meta_same_shape(m, &want) &&
                      pst_dtype_kind(m->dtype) == PST_KIND_FLOAT))
        return PST_OK;
    return pst_infer_fail(c, "\"%s\" is %s", c->schema->args[i].name,
                          pst_meta_text(m, text));
}

static enum pst_status apply_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = check_images(c, 0, &x);

    for (unsigned i = 1; i < 3 && status == PST_OK; i++)
        status = check_sizes(c, i, 1, &x->size[1]);
    for (unsigned i = 3; i < 5 && status == PST_OK; i++)
        status = check_stats(c, i, x);
    if (status == PST_OK &&
        !pst_meta_same(pst_infer_in(c, 3), pst_infer_in(c, 4)))
        status = pst_infer_fail(c, "mean and rstd differ");
    return status == PST_OK ? pst_infer_set_like(c, 0, x->dtype, x) : status;
}

/* Checks the gradient (argument 0), the input and the statistics. */
static enum pst_status backward_check(const struct pst_infer *c,
                                      unsigned first_stat,
                                      const struct pst_meta **x)
{
    enum pst_status status = check_images(c, 1, x);

    if (status == PST_OK && !pst_meta_same(pst_infer_in(c, 0), *x))
        status = pst_infer_fail(c, "gradient and input differ");
    for (unsigned i = 0; i < 2 && status == PST_OK; i++)
        status = check_stats(c, first_stat + i, *x);
    if (status == PST_OK && !pst_meta_same(pst_infer_in(c, first_stat),
                                           pst_infer_in(c, first_stat + 1)))
        status = pst_infer_fail(c, "mean and rstd differ");
    return status;
}

static enum pst_status sums_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    int64_t size[2];
    enum pst_status status = backward_check(c, 2, &x);

    if (status != PST_OK)
        return status;
    size[0] = pst_infer_in(c, 2)->size[0];
    size[1] = x->size[1];
    for (unsigned k = 0; k < 2 && status == PST_OK; k++)
        status = pst_infer_set(c, k, stats_dtype(x->dtype), 2, size);
    return status;
}

static enum pst_status input_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    int64_t size[2];
    enum pst_status status = backward_check(c, 3, &x);

    if (status == PST_OK)
        status = check_sizes(c, 2, 1, &x->size[1]);
    if (status != PST_OK)
        return status;
    size[0] = pst_infer_in(c, 3)->size[0];
    size[1] = x->size[1];
    for (unsigned i = 5; i < 7 && status == PST_OK; i++)
        status = check_sizes(c, i, 2, size);
    return status == PST_OK ? pst_infer_set_like(c, 0, x->dtype, x) : status;
}

/* --- kernels ------------------------------------------------------------ */

static struct pst_norm_channels describe(const struct pst_operand *x,
                                         int64_t blocks, int64_t groups)
{
    struct pst_norm_channels p = {.x = x,
                                  .n = x->meta->size[0],
                                  .c = x->meta->size[1],
                                  .s = 1,
                                  .blocks = blocks,
                                  .g = groups};

    for (unsigned d = 2; d < x->meta->rank; d++)
        p.s *= x->meta->size[d];
    return p;
}

struct pst_norm_channels pst_norm_channels_of_stats(const struct pst_call *c)
{
    const struct pst_meta *m = c->out[0].meta;
    struct pst_norm_channels p = describe(&c->in[0], m->size[0], m->size[1]);

    p.eps = c->args[3].f;
    return p;
}

struct pst_norm_channels pst_norm_channels_of_apply(const struct pst_call *c)
{
    const struct pst_meta *m = c->in[3].meta;
    struct pst_norm_channels p = describe(&c->in[0], m->size[0], m->size[1]);

    p.w = &c->in[1];
    p.b = &c->in[2];
    p.mean = &c->in[3];
    p.rstd = &c->in[4];
    return p;
}

struct pst_norm_channels pst_norm_channels_of_sums(const struct pst_call *c)
{
    const struct pst_meta *m = c->in[2].meta;
    struct pst_norm_channels p = describe(&c->in[1], m->size[0], m->size[1]);

    p.dy = &c->in[0];
    p.mean = &c->in[2];
    p.rstd = &c->in[3];
    return p;
}

struct pst_norm_channels pst_norm_channels_of_input(const struct pst_call *c)
{
    const struct pst_meta *m = c->in[3].meta;
    struct pst_norm_channels p = describe(&c->in[1], m->size[0], m->size[1]);

    p.dy = &c->in[0];
    p.w = &c->in[2];
    p.mean = &c->in[3];
    p.rstd = &c->in[4];
    p.sum_a = &c->in[5];
    p.sum_b = &c->in[6];
    return p;
}

/* True if there are no images, and so nothing to compute. */
static bool is_empty(const struct pst_norm_channels *p)
{
    return p->blocks == 0;
}

/* True if all operands have this dtype; absent operands have an empty meta. */
static bool all_of(const struct pst_call *c, enum pst_dtype dtype)
{
    for (unsigned i = 0; i < c->n_in; i++)
        if (pst_meta_numel(c->in[i].meta) > 0 && c->in[i].meta->dtype != dtype)
            return false;
    return true;
}

static bool all_f32(const struct pst_call *c)
{
    return all_of(c, PST_F32);
}

static bool all_f64(const struct pst_call *c)
{
    return all_of(c, PST_F64);
}

#define RUN_SET(id, suffix)                                                    \
    static void id##_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        const struct pst_norm_channels p = pst_norm_channels_of_##id(c);       \
                                                                               \
        if (!is_empty(&p) &&                                                   \
            !pst_columns_run_##id(c, &p, &pst_channel_loops_##suffix))         \
            pst_norm_channels_run_##id(c, &p, &pst_channel_loops_##suffix);    \
    }
/* Defines the kernels of an operator; the last arguments are the results, which
 * the reference takes. */
#define KERNELS(id, bits, ...)                                                 \
    RUN_SET(id, any)                                                           \
    PST_SIMD_IF_AVX2(RUN_SET(id, avx2))                                        \
    PST_SIMD_IF_AVX512(RUN_SET(id, avx512))                                    \
    static void id##_f64(const struct pst_call *c)                             \
    {                                                                          \
        const struct pst_norm_channels p = pst_norm_channels_of_##id(c);       \
                                                                               \
        if (!is_empty(&p))                                                     \
            pst_norm_channels_f64_##id(c, &p);                                 \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        const struct pst_norm_channels p = pst_norm_channels_of_##id(c);       \
                                                                               \
        if (!is_empty(&p))                                                     \
            pst_norm_channels_ref_##id(&p, __VA_ARGS__);                       \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS("norm_" #id "_f32", id##_f32, PST_D(F32), bits, all_f32, \
                      NULL, 2e-5),                                             \
        PST_SIMD_ROW("norm_" #id "_f64", PST_ISA_ANY, id##_f64, PST_D(F64),    \
                     bits, all_f64, NULL, 1e-12),                              \
        {.name = "norm_" #id "_ref",                                           \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_STRIDED,                                               \
         .run = id##_ref},                                                     \
    }
KERNELS(stats, 0, &c->out[0], &c->out[1], &c->out[2]);
KERNELS(apply, PST_K_INPLACE_0, &c->out[0]);
KERNELS(sums, 0, &c->out[0], &c->out[1]);
KERNELS(input, PST_K_INPLACE_0, &c->out[0]);

/* --- gradients ---------------------------------------------------------- */

/* Gradients of the statistics, if these are results (native_group_norm):
 *     d mean = 1 / M,  d rstd = -rstd^3 (x - mean) / M,
 *     d var = 2 (x - mean) / M
 * Statistics of whole batches have no gradient, as in PyTorch. */
static enum pst_status stats_vjp(struct pst_vjp *v)
{
    struct pst_value *x = pst_vjp_in(v, 0), *by, *dx;
    struct pst_value *mean = pst_vjp_out(v, 0), *rstd = pst_vjp_out(v, 1);
    const int64_t n = x->meta.size[0], g = v->node->args[1].i;
    const int64_t m = n * g == 0 ? 0 : pst_meta_numel(&x->meta) / (n * g);
    const int64_t rows[3] = {n, g, m}, cols[3] = {n, g, 1};
    const struct pst_meta like = pst_meta_make(mean->meta.dtype, 3, rows);

    if (v->node->args[2].b || m == 0)
        return v->build.status;
    dx = pst_vjp_reshape(v, pst_vjp_grad(v, 0), 3, cols);
    dx = pst_vjp_div_scalar(v, pst_vjp_expand_as(v, dx, &like), (double)m);
    by = pst_vjp_mul(v, pst_vjp_grad(v, 1), pst_vjp_pow_scalar(v, rstd, 3.0));
    by = pst_vjp_mul_scalar(v, by, -1.0 / (double)m);
    if (pst_vjp_grad(v, 2) != NULL) {
        struct pst_value *of_var =
            pst_vjp_mul_scalar(v, pst_vjp_grad(v, 2), 2.0 / (double)m);

        by = by == NULL ? of_var : pst_vjp_add(v, by, of_var);
    }
    if (by != NULL) {
        struct pst_value *d =
            pst_vjp_cast(v, pst_vjp_reshape(v, x, 3, rows), mean->meta.dtype);

        d = pst_vjp_sub(v, d, pst_vjp_reshape(v, mean, 3, cols));
        d = pst_vjp_mul(v, d, pst_vjp_reshape(v, by, 3, cols));
        dx = dx == NULL ? d : pst_vjp_add(v, dx, d);
    }
    dx = pst_vjp_cast(v, dx, x->meta.dtype);
    return pst_vjp_set(v, 0,
                       dx == NULL ? NULL : pst_vjp_reshape_as(v, dx, &x->meta));
}

/* Sets the gradient of argument i, of shape (C), to `sums` (blocks, C) summed
 * over blocks. */
static void set_sum(struct pst_vjp *v, unsigned i, struct pst_value *sums)
{
    const struct pst_value *of = pst_vjp_in(v, i);
    const int64_t first = 0;

    if (of == NULL || sums == NULL || !pst_vjp_needs(v, i))
        return;
    if (sums->meta.size[0] != 1)
        sums = pst_vjp_sum_dims(v, sums, &first, 1, false);
    if (sums != NULL)
        sums = pst_vjp_reshape_as(v, sums, &of->meta);
    pst_vjp_set(v, pst_vjp_flat(v, i), pst_vjp_cast(v, sums, of->meta.dtype));
}

static enum pst_status apply_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *x = pst_vjp_in(v, 0);
    struct pst_value *w = pst_vjp_in(v, 1), *b = pst_vjp_in(v, 2);
    const struct pst_arg *args = v->node->args;
    const bool training = args[5].b;
    const bool wants = (w != NULL && pst_vjp_needs(v, 1)) ||
                       (b != NULL && pst_vjp_needs(v, 2));
    struct pst_node *sums = NULL;

    if (g == NULL)
        return v->build.status;
    if (wants || (training && pst_vjp_needs(v, 0)))
        sums = pst_emit_node(&v->build, &pst_op_norm_sums,
                             PST_ARGS(pst_v(g), pst_v(x), args[3], args[4]));
    if (v->build.status != PST_OK)
        return v->build.status;
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(
            v, 0,
            pst_emit(&v->build, &pst_op_norm_input,
                     PST_ARGS(pst_v(g), pst_v(x), args[1], args[3], args[4],
                              pst_v(training ? sums->outs[0] : NULL),
                              pst_v(training ? sums->outs[1] : NULL))));
    if (sums != NULL) {
        set_sum(v, 1, sums->outs[1]);
        set_sum(v, 2, sums->outs[0]);
    }
    return v->build.status;
}

/* --- rows --------------------------------------------------------------- */

/* `several` requires more than one value per statistic, and so does `training`
 * while the graph trains. `together` requires more than one value per group
 * over all samples, which PyTorch also demands of group norm in evaluation. */
const struct pst_op pst_op_norm_stats = {
    .schema = "penstock::norm_stats(Tensor input, int groups, bool batch, "
              "float eps, bool training=False, bool several=False, bool "
              "together=False) -> "
              "(Tensor mean, Tensor rstd, Tensor var)",
    .infer = stats_infer,
    .vjp = stats_vjp,
};
PST_CPU_KERNELS(norm_stats, stats_kernels);

const struct pst_op pst_op_norm_apply = {
    .schema = "penstock::norm_apply(Tensor input, Tensor? weight, Tensor? "
              "bias, Tensor mean, Tensor rstd, bool training) -> Tensor",
    .infer = apply_infer,
    .vjp = apply_vjp,
};
PST_CPU_KERNELS(norm_apply, apply_kernels);

const struct pst_op pst_op_norm_sums = {
    .schema = "penstock::norm_sums(Tensor grad_output, Tensor input, Tensor "
              "mean, Tensor rstd) -> (Tensor, Tensor)",
    .infer = sums_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(norm_sums, sums_kernels);

const struct pst_op pst_op_norm_input = {
    .schema = "penstock::norm_input(Tensor grad_output, Tensor input, Tensor? "
              "weight, Tensor mean, Tensor rstd, Tensor? sum_g, Tensor? "
              "sum_gx) -> Tensor",
    .infer = input_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(norm_input, input_kernels);
