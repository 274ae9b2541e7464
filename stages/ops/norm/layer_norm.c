// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rows.h"
#include "stages/ops/norm/norm.h"

/* --- layer_norm, native_layer_norm --------------------------------------- */

static enum pst_status layer_norm_check(struct pst_infer *c,
                                        const struct pst_meta **x)
{
    const struct pst_meta *w = pst_infer_in(c, 2), *b = pst_infer_in(c, 3);
    enum pst_status status = pst_infer_tensor(c, 0, x);

    if (status != PST_OK)
        return status;
    /* f64 weights occur when a model of f32 and bf16 is upcast for a
     * comparison. */
    if ((w != NULL && w->dtype != (*x)->dtype && w->dtype != PST_F32 &&
         w->dtype != PST_F64) ||
        (w != NULL && b != NULL && b->dtype != w->dtype))
        return pst_infer_fail(c, "an input of %s with a weight of %s",
                              pst_dtype_name((*x)->dtype),
                              pst_dtype_name(w->dtype));
    return pst_norm_check(c, 1, *x, w, b);
}

static enum pst_status layer_norm_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = layer_norm_check(c, &x);

    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

/* Mean and rstd have size 1 in the normalised dimensions. Their dtype is that
 * of the weights or, without weights, that of x. */
static enum pst_status native_layer_norm_infer(struct pst_infer *c)
{
    const struct pst_meta *x, *w = pst_infer_in(c, 2);
    enum pst_status status = layer_norm_check(c, &x);
    int64_t size[PST_MAX_RANK];

    if (status == PST_OK)
        status = pst_infer_set_like(c, 0, x->dtype, x);
    for (unsigned k = 1; status == PST_OK && k <= 2; k++) {
        for (unsigned d = 0; d < x->rank; d++)
            size[d] = d + c->args[1].n < x->rank ? x->size[d] : 1;
        status =
            pst_infer_set(c, k, w != NULL ? w->dtype : x->dtype, x->rank, size);
    }
    return status;
}

/* Returns the gradient of x through the results mean and rstd of
 * native_layer_norm: (gm - gs rstd^3 (x - mean)) / n, with their gradients gm
 * and gs. Returns NULL if both are absent, the usual case. */
static struct pst_value *stats_vjp(struct pst_vjp *v)
{
    struct pst_value *gm = v->grads[1], *gs = v->grads[2], *ret = NULL;
    struct pst_value *x = pst_vjp_in(v, 0), *s = pst_vjp_out(v, 2);
    double n = 1.0;

    for (unsigned i = 0; i < v->node->args[1].n; i++)
        n *= (double)v->node->args[1].ints[i];
    if (gs != NULL) {
        gs = pst_vjp_mul(v, gs, pst_vjp_mul(v, s, pst_vjp_mul(v, s, s)));
        ret = pst_vjp_mul(v, gs, pst_vjp_sub(v, x, pst_vjp_out(v, 1)));
        ret = pst_vjp_div_scalar(v, ret, -n);
    }
    if (gm != NULL) {
        gm = pst_vjp_expand_as(v, pst_vjp_div_scalar(v, gm, n), &x->meta);
        ret = ret == NULL ? gm : pst_vjp_add(v, ret, gm);
    }
    return pst_vjp_cast(v, ret, x->meta.dtype);
}

/* Emits the gradients of weight and bias, in one pass over g and x if both are
 * needed. */
static void affine_vjp(struct pst_vjp *v, struct pst_value *g)
{
    struct pst_value *w = pst_vjp_in(v, 2), *b = pst_vjp_in(v, 3);
    const struct pst_arg *args = v->node->args;
    struct pst_value *d[2] = {NULL, NULL};
    const bool for_w = w != NULL && pst_vjp_needs(v, 2);
    const bool for_b = b != NULL && pst_vjp_needs(v, 3);

    if (for_w && for_b) {
        const struct pst_node *both =
            pst_emit_node(&v->build, &pst_op_layer_norm_backward_affine,
                          PST_ARGS(pst_v(g), args[0], args[1], args[4]));

        if (both == NULL)
            return;
        d[0] = both->outs[0];
        d[1] = both->outs[1];
    } else if (for_w) {
        d[0] = pst_vjp_emit(v, &pst_op_layer_norm_backward_weight,
                            PST_ARGS(pst_v(g), args[0], args[1], args[4]));
    } else if (for_b) {
        d[1] = pst_vjp_emit(v, &pst_op_column_sum,
                            PST_ARGS(pst_v(g), pst_i(args[1].n)));
    }
    if (for_w)
        pst_vjp_set(v, 1, pst_vjp_cast(v, d[0], w->meta.dtype));
    if (for_b)
        pst_vjp_set(v, 2, pst_vjp_cast(v, d[1], b->meta.dtype));
}

/*
 * dx is a separate node, because only dx is on the path to the gradients of
 * earlier nodes.
 */
static enum pst_status layer_norm_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *d;
    struct pst_value *through = NULL;
    const struct pst_arg *args = v->node->args;

    if (pst_vjp_needs(v, 0) && v->node->n_outs == 3)
        through = stats_vjp(v);
    if (g == NULL)
        return pst_vjp_set(v, 0, through);
    if (pst_vjp_needs(v, 0)) {
        d = pst_vjp_emit(
            v, &pst_op_layer_norm_backward_input,
            PST_ARGS(pst_v(g), args[0], args[1], args[2], args[4]));
        if (through != NULL)
            d = pst_vjp_add(v, d, through);
        pst_vjp_set(v, 0, d);
    }
    affine_vjp(v, g);
    return v->build.status;
}

struct pst_norm pst_norm_of_layer(const struct pst_call *c)
{
    struct pst_norm p = {.centre = true,
                         .eps = pst_norm_eps(&c->args[4], PST_F32),
                         .x = &c->in[0],
                         .w = &c->in[1],
                         .b = &c->in[2]};

    pst_norm_rows(&p, p.x->meta, c->args[1].n);
    return p;
}

static void layer_norm_ref(const struct pst_call *c)
{
    const struct pst_norm p = pst_norm_of_layer(c);

    pst_norm_ref(&p, &c->out[0], c->n_out == 3 ? &c->out[1] : NULL,
                 c->n_out == 3 ? &c->out[2] : NULL);
}

/* Returns the scratch for the statistics of rows, which are then copied to two
 * outputs. */
static size_t native_layer_norm_scratch(const struct pst_call *c,
                                        unsigned threads)
{
    const struct pst_norm p = pst_norm_of_layer(c);

    (void)threads;
    return (size_t)p.rows * 2 * pst_dtype_size(p.x->meta->dtype);
}

static bool weights_are_alike(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;

    return (c->args[2].kind != PST_ARG_VALUE ||
            c->in[1].meta->dtype == dtype) &&
           (c->args[3].kind != PST_ARG_VALUE || c->in[2].meta->dtype == dtype);
}

#define RUN_FORWARD(suffix, set)                                               \
    static void layer_norm_##suffix(const struct pst_call *c)                  \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_layer(c);                        \
                                                                               \
        pst_norm_run(c, &p, PST_NORM_LOOPS(suffix));                           \
    }
PST_SIMD_EACH(RUN_FORWARD)

static const struct pst_kernel layer_norm_kernels[] = {
    PST_SIMD_ROWS("layer_norm_f32", layer_norm, PST_D(F32), PST_K_INPLACE_0,
                  weights_are_alike, NULL, 1e-5),
    PST_SIMD_ROWS("layer_norm_f64", layer_norm, PST_D(F64), PST_K_INPLACE_0,
                  weights_are_alike, NULL, 1e-12),
    {.name = "layer_norm_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = layer_norm_ref},
};

static const struct pst_kernel native_layer_norm_kernels[] = {
    PST_SIMD_ROWS("native_layer_norm_f32", layer_norm, PST_D(F32),
                  PST_K_INPLACE_0, weights_are_alike, native_layer_norm_scratch,
                  1e-5),
    PST_SIMD_ROWS("native_layer_norm_f64", layer_norm, PST_D(F64),
                  PST_K_INPLACE_0, weights_are_alike, native_layer_norm_scratch,
                  1e-12),
    {.name = "native_layer_norm_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = layer_norm_ref},
};

const struct pst_op pst_op_layer_norm = {
    .schema = "aten::layer_norm(Tensor input, SymInt[] normalized_shape, "
              "Tensor? weight=None, Tensor? bias=None, float "
              "eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor",
    .infer = layer_norm_infer,
    .vjp = layer_norm_vjp,
};
PST_CPU_KERNELS(layer_norm, layer_norm_kernels);

const struct pst_op pst_op_native_layer_norm = {
    .schema = "aten::native_layer_norm(Tensor input, SymInt[] "
              "normalized_shape, Tensor? weight, Tensor? bias, float eps) -> "
              "(Tensor, Tensor, Tensor)",
    .infer = native_layer_norm_infer,
    .vjp = layer_norm_vjp,
};
PST_CPU_KERNELS(native_layer_norm, native_layer_norm_kernels);

/* --- backward operators --------------------------------------------------- */

static enum pst_status grad_check(const struct pst_infer *c,
                                  const struct pst_meta **x)
{
    const struct pst_meta *g;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, x);
    if (status == PST_OK && !pst_meta_same_shape(g, *x))
        status = pst_infer_fail(c, "gradient and input differ in shape");
    return status;
}

static enum pst_status backward_input_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = grad_check(c, &x);

    if (status == PST_OK)
        status = pst_norm_check(c, 2, x, pst_infer_in(c, 3), NULL);
    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

static enum pst_status backward_weight_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = grad_check(c, &x);

    if (status == PST_OK)
        status = pst_norm_check(c, 2, x, NULL, NULL);
    return status != PST_OK ? status
                            : pst_infer_set(c, 0, pst_infer_in(c, 0)->dtype,
                                            c->args[2].n, c->args[2].ints);
}

static enum pst_status backward_affine_infer(struct pst_infer *c)
{
    enum pst_status status = backward_weight_infer(c);

    return status != PST_OK ? status
                            : pst_infer_set(c, 1, pst_infer_in(c, 0)->dtype,
                                            c->args[2].n, c->args[2].ints);
}

struct pst_norm pst_norm_of_backward(const struct pst_call *c, bool centre,
                                     bool has_weight)
{
    struct pst_norm p = {
        .centre = centre,
        .eps = pst_norm_eps(&c->args[has_weight ? 4 : 3], c->in[1].meta->dtype),
        .g = &c->in[0],
        .x = &c->in[1],
        .w = has_weight ? &c->in[2] : NULL};

    pst_norm_rows(&p, p.x->meta, c->args[2].n);
    return p;
}

static size_t backward_weight_scratch(const struct pst_call *c,
                                      unsigned threads)
{
    const struct pst_norm p = pst_norm_of_backward(c, true, false);

    (void)threads;
    return pst_norm_weight_scratch(&p);
}

static bool all_alike(const struct pst_call *c)
{
    for (unsigned i = 0; i < c->n_in; i++)
        if ((i < 2 || c->args[3].kind == PST_ARG_VALUE) &&
            c->in[i].meta->dtype != c->in[0].meta->dtype)
            return false;
    return true;
}

/* Defines both backward operators of layer_norm (centre) or rms_norm. */
#define RUN_BACKWARD(suffix, norm, centre)                                     \
    static void norm##_input_##suffix(const struct pst_call *c)                \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_backward(c, centre, true);       \
                                                                               \
        pst_norm_run_input(c, &p, PST_NORM_LOOPS(suffix));                     \
    }                                                                          \
    static void norm##_weight_##suffix(const struct pst_call *c)               \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_backward(c, centre, false);      \
                                                                               \
        pst_norm_run_weight(c, &p, PST_NORM_LOOPS(suffix));                    \
    }
#define RUN_LAYER(suffix, set) RUN_BACKWARD(suffix, layer, true)
#define RUN_RMS(suffix, set)   RUN_BACKWARD(suffix, rms, false)
PST_SIMD_EACH(RUN_LAYER)
PST_SIMD_EACH(RUN_RMS)

#define BACKWARD_KERNELS(norm, is_centred)                                     \
    static void norm##_input_ref(const struct pst_call *c)                     \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_backward(c, is_centred, true);   \
                                                                               \
        pst_norm_input_ref(&p, &c->out[0]);                                    \
    }                                                                          \
    static void norm##_weight_ref(const struct pst_call *c)                    \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_backward(c, is_centred, false);  \
                                                                               \
        pst_norm_weight_ref(&p, &c->out[0], c->accumulate);                    \
    }                                                                          \
    static const struct pst_kernel norm##_input_kernels[] = {                  \
        PST_SIMD_ROWS(#norm "_norm_backward_input_f32", norm##_input,          \
                      PST_D(F32), PST_K_INPLACE_0, all_alike, NULL, 2e-5),     \
        PST_SIMD_ROWS(#norm "_norm_backward_input_f64", norm##_input,          \
                      PST_D(F64), PST_K_INPLACE_0, all_alike, NULL, 1e-12),    \
        {.name = #norm "_norm_backward_input_ref",                             \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_STRIDED,                                               \
         .run = norm##_input_ref},                                             \
    };                                                                         \
    static const struct pst_kernel norm##_weight_kernels[] = {                 \
        PST_SIMD_ROWS(#norm "_norm_backward_weight_f32", norm##_weight,        \
                      PST_D(F32), PST_K_ACCUMULATE, all_alike,                 \
                      backward_weight_scratch, 2e-5),                          \
        PST_SIMD_ROWS(#norm "_norm_backward_weight_f64", norm##_weight,        \
                      PST_D(F64), PST_K_ACCUMULATE, all_alike,                 \
                      backward_weight_scratch, 1e-12),                         \
        {.name = #norm "_norm_backward_weight_ref",                            \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .run = norm##_weight_ref},                                            \
    }
BACKWARD_KERNELS(layer, true);
BACKWARD_KERNELS(rms, false);

static void layer_affine_ref(const struct pst_call *c)
{
    const struct pst_norm p = pst_norm_of_backward(c, true, false);

    pst_norm_weight_ref(&p, &c->out[0], false);
    pst_norm_bias_ref(&p, &c->out[1]);
}

static const struct pst_kernel layer_affine_kernels[] = {
    PST_SIMD_ROWS("layer_norm_backward_affine_f32", layer_weight, PST_D(F32), 0,
                  all_alike, backward_weight_scratch, 2e-5),
    PST_SIMD_ROWS("layer_norm_backward_affine_f64", layer_weight, PST_D(F64), 0,
                  all_alike, backward_weight_scratch, 1e-12),
    {.name = "layer_norm_backward_affine_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = layer_affine_ref},
};

const struct pst_op pst_op_layer_norm_backward_affine = {
    .schema = "penstock::layer_norm_backward_affine(Tensor grad_output, Tensor "
              "input, int[] normalized_shape, float eps) -> (Tensor, Tensor)",
    .infer = backward_affine_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(layer_norm_backward_affine, layer_affine_kernels);

const struct pst_op pst_op_layer_norm_backward_input = {
    .schema = "penstock::layer_norm_backward_input(Tensor grad_output, Tensor "
              "input, int[] normalized_shape, Tensor? weight, float eps) -> "
              "Tensor",
    .infer = backward_input_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(layer_norm_backward_input, layer_input_kernels);

const struct pst_op pst_op_layer_norm_backward_weight = {
    .schema = "penstock::layer_norm_backward_weight(Tensor grad_output, Tensor "
              "input, int[] normalized_shape, float eps) -> Tensor",
    .infer = backward_weight_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(layer_norm_backward_weight, layer_weight_kernels);

const struct pst_op pst_op_rms_norm_backward_input = {
    .schema = "penstock::rms_norm_backward_input(Tensor grad_output, Tensor "
              "input, int[] normalized_shape, Tensor? weight, float? eps) -> "
              "Tensor",
    .infer = backward_input_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(rms_norm_backward_input, rms_input_kernels);

const struct pst_op pst_op_rms_norm_backward_weight = {
    .schema = "penstock::rms_norm_backward_weight(Tensor grad_output, Tensor "
              "input, int[] normalized_shape, float? eps) -> Tensor",
    .infer = backward_weight_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(rms_norm_backward_weight, rms_weight_kernels);
