// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/optim.h"

#include <math.h>

/* Elements that are updated at a time, and how many elements ahead data is
 * prefetched: a page, since the hardware does not prefetch beyond the page. */
#define BLOCK 64
#define AHEAD 1024
#define LINE  16 /* floats in a cache line */

#define TENSORS 4 /* a parameter and at most three states */

/* Prefetches the elements AHEAD of a block; x NULL: no such tensor. Addresses
 * past the end are never loaded. */
static PST_ALWAYS_INLINE void call_up(const float *x, int64_t at)
{
    const uintptr_t from = (uintptr_t)x + sizeof(*x) * (size_t)(at + AHEAD);

    for (unsigned j = 0; x != NULL && j < BLOCK; j += LINE)
        __builtin_prefetch((const void *)(from + j * sizeof(*x)));
}

/* Returns 0 if all are finite, else NaN. */
static PST_ALWAYS_INLINE float probe(float a, float b, float c)
{
    return 0.0f * a + 0.0f * b + 0.0f * c;
}

/* The values of a block before its update: of the parameter, then of each of
 * its states. */
struct block {
    float was[TENSORS][BLOCK];
};

/* Restores elements of a block, which begins at element `at` of the tensors x
 * (NULL after the last one), that were finite and no longer are; returns their
 * number. */
static int64_t put_back(const struct block *b, int64_t at, int64_t n,
                        float *const x[TENSORS])
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        float was = 0, now = 0;

        for (int k = 0; k < TENSORS && x[k] != NULL; k++) {
            was += 0.0f * b->was[k][i];
            now += 0.0f * x[k][at + i];
        }
        if (!(was == 0) || now == 0)
            continue;
        for (int k = 0; k < TENSORS && x[k] != NULL; k++)
            x[k][at + i] = b->was[k][i];
        count++;
    }
    return count;
}

static int64_t adamw(int64_t n, float *restrict p, const float *restrict g,
                     float *restrict m, float *restrict v, double lr,
                     double beta1, double beta2, double eps,
                     double weight_decay, double bias1, double bias2,
                     double gscale)
{
    const float keep = (float)(1.0 - lr * weight_decay);
    const float b1 = (float)(1.0 - beta1), b2 = (float)beta2;
    const float c2 = (float)(1.0 - beta2), root = (float)(1.0 / sqrt(bias2));
    const float step = (float)(lr / bias1), e = (float)eps;
    const float gs = (float)gscale;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        call_up(p, at);
        call_up(g, at);
        call_up(m, at);
        call_up(v, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs;
            const float mi = m[i] + b1 * (gi - m[i]);
            const float vi = b2 * v[i] + c2 * gi * gi;
            const float pi = p[i] * keep - step * (mi / (sqrtf(vi) * root + e));

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = m[i];
            b.was[2][i - at] = v[i];
            m[i] = mi;
            v[i] = vi;
            p[i] = pi;
            is_odd |= probe(pi, mi, vi) != 0;
        }
        if (is_odd)
            stayed +=
                put_back(&b, at, end - at, (float *const[TENSORS]){p, m, v});
    }
    return stayed;
}

static int64_t sgd(int64_t n, float *restrict p, const float *restrict g,
                   float *restrict buf, double lr, double momentum,
                   double dampening, double weight_decay, bool nesterov,
                   bool first, double gscale)
{
    const float a = (float)lr, mu = (float)momentum, gs = (float)gscale;
    const float damp = (float)(1.0 - dampening), decay = (float)weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        call_up(p, at);
        call_up(g, at);
        call_up(buf, at);
        if (buf == NULL) {
            for (int64_t i = at; i < end; i++) {
                const float pi = p[i] - a * (g[i] * gs + decay * p[i]);

                b.was[0][i - at] = p[i];
                p[i] = pi;
                is_odd |= probe(pi, 0, 0) != 0;
            }
        } else { /* The first step stores the gradient undamped, as torch does.
                  */
            for (int64_t i = at; i < end; i++) {
                const float gi = g[i] * gs + decay * p[i];
                const float bi = first ? gi : mu * buf[i] + damp * gi;
                const float pi = p[i] - a * (nesterov ? gi + mu * bi : bi);

                b.was[0][i - at] = p[i];
                b.was[1][i - at] = buf[i];
                buf[i] = bi;
                p[i] = pi;
                is_odd |= probe(pi, bi, 0) != 0;
            }
        }
        if (is_odd)
            stayed +=
                put_back(&b, at, end - at, (float *const[TENSORS]){p, buf});
    }
    return stayed;
}

/* Sums in 16 lanes, then by a fixed tree: the bits do not depend on the vector
 * width. */
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
    .sumsq = sumsq,
    .scale = scale,
    .add = add,
};

const struct pst_simd_updates PST_SIMD(pst_simd_updates) = {
    .adamw = adamw,
    .sgd = sgd,
};
