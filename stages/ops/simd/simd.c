// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/simd.h"

#include "stages/ops/simd/optim.h"

const struct pst_simd_ops *pst_simd_best(enum pst_isa isa)
{
#if PST_HAVE_AVX512
    if (isa == PST_ISA_AVX512)
        return &pst_simd_ops_avx512;
#endif
#if PST_HAVE_AVX2
    if (isa >= PST_ISA_AVX2)
        return &pst_simd_ops_avx2;
#endif
    (void)isa;
    return &pst_simd_ops_any;
}

/* Fewer elements than this are not worth waking a thread. */
#define GRAIN 8192

struct elementwise {
    int64_t n;
    const float *a, *b;
    float *y;
    pst_simd_unary_fn unary;
    pst_simd_binary_fn binary;
};

static void elementwise_part(void *ctx, unsigned part, unsigned parts)
{
    const struct elementwise *e = ctx;
    int64_t begin, end;

    pst_pool_share(e->n, 16, part, parts, &begin, &end);
    if (begin >= end)
        return;
    if (e->unary != NULL)
        e->unary(end - begin, e->a + begin, e->y + begin);
    else
        e->binary(end - begin, e->a + begin, e->b + begin, e->y + begin);
}

static void elementwise_run(const struct pst_call *c, struct elementwise *e)
{
    e->n = pst_meta_numel(&c->out[0].meta);
    e->a = c->in[0].data;
    e->y = c->out[0].data;
    if (e->n <= GRAIN)
        elementwise_part(e, 0, 1);
    else
        pst_pool_run(c->pool, elementwise_part, e);
}

void pst_simd_run_unary(const struct pst_call *c, pst_simd_unary_fn loop)
{
    struct elementwise e = {.unary = loop};

    elementwise_run(c, &e);
}

void pst_simd_run_binary(const struct pst_call *c, pst_simd_binary_fn loop)
{
    struct elementwise e = {.b = c->in[1].data, .binary = loop};

    elementwise_run(c, &e);
}
