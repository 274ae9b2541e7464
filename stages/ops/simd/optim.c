// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/optim.h"

#include <math.h>

/* Elements that are done at a time, and how far ahead their successors are
 * called from memory: a page, which the processor does not look beyond by
 * itself. */
#define BLOCK 64
#define AHEAD 1024
#define LINE  16 /* floats in a cache line */

/* The block's successors; NULL: no such tensor. Addresses past the end are
 * never loaded. */
static PST_ALWAYS_INLINE void call_up(const float *x, int64_t at)
{
    const uintptr_t from = (uintptr_t)x + sizeof(*x) * (size_t)(at + AHEAD);

    for (unsigned j = 0; x != NULL && j < BLOCK; j += LINE)
        __builtin_prefetch((const void *)(from + j * sizeof(*x)));
}

static void adamw(int64_t n, float *restrict p, const float *restrict g,
                  float *restrict m, float *restrict v, double lr, double beta1,
                  double beta2, double eps, double weight_decay, double bias1,
                  double bias2, double gscale)
{
    const float keep = (float)(1.0 - lr * weight_decay);
    const float b1 = (float)(1.0 - beta1), b2 = (float)beta2;
    const float c2 = (float)(1.0 - beta2), root = (float)(1.0 / sqrt(bias2));
    const float step = (float)(lr / bias1), e = (float)eps;
    const float gs = (float)gscale;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;

        call_up(p, at);
        call_up(g, at);
        call_up(m, at);
        call_up(v, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs;
            const float mi = m[i] + b1 * (gi - m[i]);
            const float vi = b2 * v[i] + c2 * gi * gi;

            m[i] = mi;
            v[i] = vi;
            p[i] = p[i] * keep - step * (mi / (sqrtf(vi) * root + e));
        }
    }
}

static void sgd(int64_t n, float *restrict p, const float *restrict g,
                float *restrict buf, double lr, double momentum,
                double dampening, double weight_decay, bool nesterov,
                bool first, double gscale)
{
    const float a = (float)lr, mu = (float)momentum, gs = (float)gscale;
    const float damp = (float)(1.0 - dampening), decay = (float)weight_decay;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;

        call_up(p, at);
        call_up(g, at);
        call_up(buf, at);
        if (buf == NULL) {
            for (int64_t i = at; i < end; i++)
                p[i] -= a * (g[i] * gs + decay * p[i]);
            continue;
        }
        /* The first step stores the gradient undamped, as torch does. */
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float bi = first ? gi : mu * buf[i] + damp * gi;

            buf[i] = bi;
            p[i] -= a * (nesterov ? gi + mu * bi : bi);
        }
    }
}

/* 16 lanes, then a fixed tree: the same bits whatever the vector width. */
static double sumsq(int64_t n, const float *x)
{
    double lane[16] = {0};
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        if (i % BLOCK == 0)
            call_up(x, i);
        for (int j = 0; j < 16; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static void scale(int64_t n, float *x, float a)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= a;
}

static void add(int64_t n, float *restrict y, const float *restrict x)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

const struct pst_simd_ops PST_SIMD(pst_simd_ops) = {
    .adamw = adamw,
    .sgd = sgd,
    .sumsq = sumsq,
    .scale = scale,
    .add = add,
};
