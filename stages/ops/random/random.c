// SPDX-License-Identifier: Apache-2.0
/* Tensors of random numbers; element i is number i of the call's stream. */
#include "stages/ops/core/op.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/layers/dropout.h"
#include "stages/ops/pointwise/nd.h"

#include <math.h>

static enum pst_status floats_only(struct pst_infer *c, enum pst_status status)
{
    if (status == PST_OK && pst_dtype_kind(c->out[0].dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "random %s", pst_dtype_name(c->out[0].dtype));
    return status;
}

static enum pst_status infer_rand(struct pst_infer *c)
{
    const enum pst_dtype dtype =
        pst_infer_dtype(c, 1, c->hint < PST_N_DTYPES ? c->hint : PST_F32);

    return floats_only(
        c, pst_infer_set(c, 0, dtype, c->args[0].n, c->args[0].ints));
}

static enum pst_status infer_rand_like(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    return floats_only(
        c, pst_infer_set_like(c, 0, pst_infer_dtype(c, 1, x->dtype), x));
}

static enum pst_status infer_bernoulli(struct pst_infer *c)
{
    const double p = c->args[1].f;

    if (!(p >= 0.0 && p <= 1.0))
        return pst_infer_fail(c, "probability %g is not in [0, 1]", p);
    return pst_infer_same_as_0(c);
}

/* Returns u in [0, 1) with no more bits than the dtype has; a longer number
 * could be rounded up to 1. */
static double truncate_bits(enum pst_dtype dtype, double u)
{
    const double values = dtype == PST_BF16  ? 0x1p8
                          : dtype == PST_F16 ? 0x1p11
                                             : 0x1p53;

    return floor(u * values) / values;
}

static void rand_ref(const struct pst_call *c)
{
    const struct pst_meta *out = c->out[0].meta;

    for (int64_t i = 0; i < pst_meta_numel(out); i++)
        pst_store_f64(
            out->dtype, c->out[0].data, i,
            out->dtype == PST_F64
                ? pst_rng_f64(&c->rng, (uint64_t)i)
                : truncate_bits(out->dtype,
                                (double)pst_rng_f32(&c->rng, (uint64_t)i)));
}

static void randn_ref(const struct pst_call *c)
{
    const struct pst_meta *out = c->out[0].meta;

    for (int64_t i = 0; i < pst_meta_numel(out); i++)
        pst_store_f64(out->dtype, c->out[0].data, i,
                      pst_rng_normal(&c->rng, (uint64_t)i));
}

static void bernoulli_ref(const struct pst_call *c)
{
    const struct pst_meta *out = c->out[0].meta;

    for (int64_t i = 0; i < pst_meta_numel(out); i++)
        pst_store_i64(out->dtype, c->out[0].data, i,
                      (double)pst_rng_f32(&c->rng, (uint64_t)i) < c->args[1].f);
}

/* --- in blocks of the stream ---------------------------------------------- */

#define BLOCK 128

struct fill {
    const struct pst_call *c;
    /* loop of one instruction set, for rand and bernoulli */
    pst_uniform_fn loop;
    uint32_t stream[4];
};

/* Parts are multiples of BLOCK, because four numbers share a block of random
 * bits. */
static void rand_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fill *f = ctx;
    const struct pst_operand *out = &f->c->out[0];
    float block[BLOCK];
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(out->meta), BLOCK, part, parts, &begin, &end);
    if (out->meta->dtype == PST_F32 && begin < end)
        f->loop(end - begin, begin, f->stream, (float *)out->data + begin);
    for (int64_t i = begin; out->meta->dtype != PST_F32 && i < end;
         i += BLOCK) {
        const int64_t n = PST_MIN(end - i, BLOCK);

        f->loop(n, i, f->stream, block);
        for (int64_t k = 0; k < n; k++)
            pst_store_f64(out->meta->dtype, out->data, i + k,
                          truncate_bits(out->meta->dtype, (double)block[k]));
    }
}

static void rand_f64_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fill *f = ctx;
    double *out = f->c->out[0].data;
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(f->c->out[0].meta), BLOCK, part, parts,
                   &begin, &end);
    for (int64_t i = begin; i < end; i++)
        out[i] = pst_rng_f64_of(f->stream, (uint64_t)i);
}

static void randn_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fill *f = ctx;
    const struct pst_operand *out = &f->c->out[0];
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(out->meta), BLOCK, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        pst_store_f64(out->meta->dtype, out->data, i,
                      pst_rng_normal_of(f->stream, (uint64_t)i));
}

static void bernoulli_part(void *ctx, unsigned part, unsigned parts)
{
    const struct fill *f = ctx;
    const struct pst_operand *out = &f->c->out[0];
    const double p = f->c->args[1].f;
    float block[BLOCK];
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(out->meta), BLOCK, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = PST_MIN(end - i, BLOCK);

        f->loop(n, i, f->stream, block);
        for (int64_t k = 0; k < n; k++)
            pst_store_i64(out->meta->dtype, out->data, i + k,
                          (double)block[k] < p);
    }
}

static void fill_random(const struct pst_call *c, pst_pool_fn part,
                        pst_uniform_fn loop)
{
    struct fill f = {.c = c, .loop = loop};

    pst_rng_stream(&c->rng, f.stream);
    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->out[0].meta) >= PST_ND_SERIAL),
        part, &f);
}

#define RUN(suffix, set)                                                       \
    static void rand_##suffix(const struct pst_call *c)                        \
    {                                                                          \
        const bool wide = c->out[0].meta->dtype == PST_F64;                    \
                                                                               \
        fill_random(c, wide ? rand_f64_part : rand_part,                       \
                    pst_simd_uniform_##suffix);                                \
    }                                                                          \
    static void randn_##suffix(const struct pst_call *c)                       \
    {                                                                          \
        fill_random(c, randn_part, NULL);                                      \
    }                                                                          \
    static void bernoulli_##suffix(const struct pst_call *c)                   \
    {                                                                          \
        fill_random(c, bernoulli_part, pst_simd_uniform_##suffix);             \
    }
PST_SIMD_EACH(RUN)

#define RANDOM(id, text, how, name)                                            \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS(#id, name, PST_D_ANY, PST_K_STRIDED, NULL, NULL, 0.0),   \
        {#id "_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,        \
         name##_ref, 0.0},                                                     \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text ") -> Tensor",                                 \
        .flags = PST_OP_RANDOM | PST_OP_ORIGIN,                                \
        .infer = how,                                                          \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

#define OPTIONS                                                                \
    "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "    \
    "bool? pin_memory=None"
#define FORMAT ", MemoryFormat? memory_format=None"

RANDOM(rand, "rand(SymInt[] size, " OPTIONS, infer_rand, rand);
RANDOM(randn, "randn(SymInt[] size, " OPTIONS, infer_rand, randn);
RANDOM(rand_like, "rand_like(Tensor self, " OPTIONS FORMAT, infer_rand_like,
       rand);
RANDOM(randn_like, "randn_like(Tensor self, " OPTIONS FORMAT, infer_rand_like,
       randn);
RANDOM(bernoulli_p,
       "bernoulli.p(Tensor self, float p, *, Generator? generator=None",
       infer_bernoulli, bernoulli);
