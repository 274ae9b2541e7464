// SPDX-License-Identifier: Apache-2.0
/*
 * Dropout. Whether element i is kept is a pure function of the call's random
 * key and i, so that the backward pass recomputes the mask instead of storing
 * it: the gradient of dropout is dropout of the gradient with the same node id.
 */
#include "stages/ops/random/dropout.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/layers/dropout.h"
#include "stages/ops/cpu/simd/vecmath.h"
#include "stages/ops/pointwise/nd.h"

static enum pst_status check_p(struct pst_infer *c)
{
    const double p = c->args[1].f;

    if (!(p >= 0.0 && p <= 1.0))
        return pst_infer_fail(c, "probability %g is not in [0, 1]", p);
    return PST_OK;
}

static bool is_identity(const struct pst_arg *args)
{
    return !args[2].b || args[1].f == 0.0;
}

static enum pst_status infer_dropout(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = check_p(c);
    if (status != PST_OK)
        return status;
    if (is_identity(c->args))
        return pst_infer_view(c, 0, 0, x, 0);
    return pst_infer_set_like(c, 0, x->dtype, x);
}

static void dropout_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const int64_t n = pst_meta_numel(x->meta);
    const double p = c->args[1].f, scale = pst_dropout_scale(p);

    for (int64_t i = 0; i < n; i++) {
        double y = 0.0;

        if ((double)pst_rng_f32(&c->rng, (uint64_t)i) >= p)
            y = pst_load_f64(x->meta->dtype, x->data, i) * scale;
        pst_store_f64(out->meta->dtype, out->data, i, y);
    }
}

struct drop {
    const struct pst_call *c;
    pst_dropout_fn loop;
    uint32_t stream[4];
    /* an element is dropped if its 24 random bits are below the threshold */
    uint32_t threshold;
    float scale;
};

/* Parts are multiples of 128 elements, because four share a block of random
 * bits. */
static void dropout_part(void *ctx, unsigned part, unsigned parts)
{
    const struct drop *d = ctx;
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(d->c->in[0].meta), 128, part, parts, &begin,
                   &end);
    if (begin < end)
        d->loop(end - begin, begin, d->stream, d->threshold, d->scale,
                (const float *)d->c->in[0].data + begin,
                (float *)d->c->out[0].data + begin);
}

static void dropout_f32(const struct pst_call *c, pst_dropout_fn loop)
{
    const double p = c->args[1].f, steps = p * 16777216.0;
    struct drop d = {.c = c,
                     .loop = loop,
                     .threshold = (uint32_t)steps,
                     .scale = (float)pst_dropout_scale(p)};

    if ((double)d.threshold < steps)
        d.threshold++;
    pst_rng_stream(&c->rng, d.stream);
    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        dropout_part, &d);
}

#define RUN(suffix, set)                                                       \
    static void dropout_f32_##suffix(const struct pst_call *c)                 \
    {                                                                          \
        dropout_f32(c, pst_simd_dropout_##suffix);                             \
    }
PST_SIMD_EACH(RUN)

static enum pst_status dropout_vjp(struct pst_vjp *v)
{
    const struct pst_node *node = v->node;
    const unsigned id = v->build.node_id;
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (!is_identity(node->args)) {
        v->build.node_id = node->id;
        g = pst_vjp_emit(v, &pst_op_dropout,
                         PST_ARGS(pst_v(g), node->args[1], node->args[2]));
        v->build.node_id = id;
    }
    return pst_vjp_set(v, 0, g);
}

/* The kernels need contiguous tensors, because elements are numbered by
 * offset. */
static const struct pst_kernel dropout_kernels[] = {
    PST_SIMD_ROWS("dropout_f32", dropout_f32, PST_D(F32), PST_K_INPLACE_0, NULL,
                  NULL, 1e-7),
    {"dropout_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_INPLACE_0, NULL, NULL,
     dropout_ref, 0.0},
};

const struct pst_op pst_op_dropout = {
    .schema = "aten::dropout(Tensor input, float p, bool train) -> Tensor",
    .flags = PST_OP_MAYBE_VIEW | PST_OP_RANDOM | PST_OP_DROPOUT |
             PST_OP_ORIGIN | PST_OP_PASSES_ON,
    .infer = infer_dropout,
    .vjp = dropout_vjp,
};
PST_CPU_KERNELS(dropout, dropout_kernels);

/* --- native_dropout: also returns the mask of kept elements --------------- */

static enum pst_status infer_native_dropout(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = check_p(c);
    if (status == PST_OK)
        status = pst_infer_set_like(c, 0, x->dtype, x);
    return status != PST_OK ? status : pst_infer_set_like(c, 1, PST_BOOL, x);
}

static void native_dropout_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const int64_t n = pst_meta_numel(x->meta);
    const bool train = pst_dropout_trains(c->args);
    const double p = train ? c->args[1].f : 0.0, scale = pst_dropout_scale(p);

    for (int64_t i = 0; i < n; i++) {
        const bool keep = (double)pst_rng_f32(&c->rng, (uint64_t)i) >= p;
        const double y =
            keep ? pst_load_f64(x->meta->dtype, x->data, i) * scale : 0.0;

        pst_store_f64(out->meta->dtype, out->data, i, y);
        ((bool *)c->out[1].data)[i] = keep;
    }
}

struct native {
    const struct pst_call *c;
    pst_uniform_fn loop;
    uint32_t stream[4];
    double p;
};

static void native_part(void *ctx, unsigned part, unsigned parts)
{
    const struct native *d = ctx;
    const float *x = d->c->in[0].data, scale = (float)pst_dropout_scale(d->p);
    float *y = d->c->out[0].data, some[1024];
    uint8_t *keep = d->c->out[1].data;
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(d->c->in[0].meta), 128, part, parts, &begin,
                   &end);
    for (int64_t at = begin; at < end; at += (int64_t)PST_COUNT(some)) {
        const int64_t n = PST_MIN(end - at, (int64_t)PST_COUNT(some));

        d->loop(n, at, d->stream, some);
        for (int64_t i = 0; i < n; i++) {
            const int stays = (double)some[i] >= d->p;

            y[at + i] = pst_vm_select(stays, x[at + i] * scale, 0.0f);
            keep[at + i] = (uint8_t)stays;
        }
    }
}

static void native_dropout_f32(const struct pst_call *c, pst_uniform_fn loop)
{
    struct native d = {.c = c,
                       .loop = loop,
                       .p = pst_dropout_trains(c->args) ? c->args[1].f : 0.0};

    pst_rng_stream(&c->rng, d.stream);
    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        native_part, &d);
}

#define NATIVE(suffix, set)                                                    \
    static void native_dropout_f32_##suffix(const struct pst_call *c)          \
    {                                                                          \
        native_dropout_f32(c, pst_simd_uniform_##suffix);                      \
    }
PST_SIMD_EACH(NATIVE)

static enum pst_status native_dropout_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;
    const double p = pst_dropout_trains(args) ? args[1].f : 0.0;
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_mul(v, g, pst_vjp_out(v, 1));
    return pst_vjp_set(v, 0, pst_vjp_mul_scalar(v, g, pst_dropout_scale(p)));
}

static const struct pst_kernel native_dropout_kernels[] = {
    PST_SIMD_ROWS("native_dropout_f32", native_dropout_f32, PST_D(F32),
                  PST_K_INPLACE_0, NULL, NULL, 1e-7),
    {"native_dropout_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_INPLACE_0, NULL,
     NULL, native_dropout_ref, 0.0},
};

const struct pst_op pst_op_native_dropout = {
    .schema = "aten::native_dropout(Tensor input, float p, bool? train) -> "
              "(Tensor, Tensor)",
    .flags = PST_OP_RANDOM | PST_OP_DROPOUT | PST_OP_ORIGIN,
    .infer = infer_native_dropout,
    .vjp = native_dropout_vjp,
};
PST_CPU_KERNELS(native_dropout, native_dropout_kernels);
