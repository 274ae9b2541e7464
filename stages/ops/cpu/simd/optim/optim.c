// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/optim/optim.h"

#include <math.h>

/* Elements that are updated at a time, and how many elements ahead data is
 * prefetched: a page, since the hardware does not prefetch beyond the page. */
#define BLOCK 64
#define AHEAD 1024
#define LINE  16 /* floats in a cache line */

#define TENSORS 4 /* a parameter and at most three states */

/* Prefetches the elements AHEAD of a block; x NULL: no such tensor. Addresses
 * past the end are never loaded. */
static PST_ALWAYS_INLINE void prefetch_ahead(const float *x, int64_t at)
{
    const uintptr_t from = (uintptr_t)x + sizeof(*x) * (size_t)(at + AHEAD);

    for (unsigned j = 0; x != NULL && j < BLOCK; j += LINE)
        __builtin_prefetch((const void *)(from + j * sizeof(*x)));
}

/* Returns 0 if all are finite, else NaN. */
static PST_ALWAYS_INLINE float finite_or_nan(float a, float b, float c)
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
static int64_t restore_elements(const struct block *b, int64_t at, int64_t n,
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

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(m, at);
        prefetch_ahead(v, at);
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
            is_odd |= finite_or_nan(pi, mi, vi) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, m, v});
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

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(buf, at);
        if (buf == NULL) {
            for (int64_t i = at; i < end; i++) {
                const float pi = p[i] - a * (g[i] * gs + decay * p[i]);

                b.was[0][i - at] = p[i];
                p[i] = pi;
                is_odd |= finite_or_nan(pi, 0, 0) != 0;
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
                is_odd |= finite_or_nan(pi, bi, 0) != 0;
            }
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, buf});
    }
    return stayed;
}

static int64_t adam(int64_t n, float *restrict p, const float *restrict g,
                    float *restrict m, float *restrict v,
                    const struct pst_update *u)
{
    const float b1 = (float)(1.0 - u->beta1), b2 = (float)u->beta2;
    const float c2 = (float)(1.0 - u->beta2), e = (float)u->eps;
    const float root = (float)(1.0 / sqrt(u->bias2));
    const float step = (float)(u->lr / u->bias1);
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(m, at);
        prefetch_ahead(v, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float mi = m[i] + b1 * (gi - m[i]);
            const float vi = b2 * v[i] + c2 * gi * gi;
            const float pi = p[i] - step * (mi / (sqrtf(vi) * root + e));

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = m[i];
            b.was[2][i - at] = v[i];
            m[i] = mi;
            v[i] = vi;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, mi, vi) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, m, v});
    }
    return stayed;
}

static int64_t adamax(int64_t n, float *restrict p, const float *restrict g,
                      float *restrict m, float *restrict top,
                      const struct pst_update *u)
{
    const float b1 = (float)(1.0 - u->beta1), b2 = (float)u->beta2;
    const float e = (float)u->eps, step = (float)(u->lr / u->bias1);
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(m, at);
        prefetch_ahead(top, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float mi = m[i] + b1 * (gi - m[i]);
            const float was = b2 * top[i], is = fabsf(gi) + e;
            const float ti = was > is ? was : is;
            const float pi = p[i] - step * (mi / ti);

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = m[i];
            b.was[2][i - at] = top[i];
            m[i] = mi;
            top[i] = ti;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, mi, ti) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, m, top});
    }
    return stayed;
}

static int64_t lion(int64_t n, float *restrict p, const float *restrict g,
                    float *restrict m, const struct pst_update *u)
{
    const float keep = (float)(1.0 - u->lr * u->weight_decay);
    const float b1 = (float)u->beta1, c1 = (float)(1.0 - u->beta1);
    const float b2 = (float)u->beta2, c2 = (float)(1.0 - u->beta2);
    const float a = (float)u->lr, gs = (float)u->grad_scale;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(m, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs;
            const float to = b1 * m[i] + c1 * gi;
            const float mi = b2 * m[i] + c2 * gi;
            const float by = to > 0 ? a : to < 0 ? -a : 0.0f;
            const float pi = p[i] * keep - by;

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = m[i];
            m[i] = mi;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, mi, 0) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, m});
    }
    return stayed;
}

/* The loop of rmsprop. Callers pass `moves` (with momentum) and `centered` as
 * constants, so that each combination is compiled; buf is NULL without
 * momentum, mean if not centered. */
static PST_ALWAYS_INLINE int64_t
rmsprop_loop(bool moves, bool centered, int64_t n, float *restrict p,
             const float *restrict g, float *restrict v, float *restrict buf,
             float *restrict mean, const struct pst_update *u)
{
    const float a = (float)u->lr, mu = (float)u->momentum, e = (float)u->eps;
    const float b2 = (float)u->alpha, c2 = (float)(1.0 - u->alpha);
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(v, at);
        prefetch_ahead(buf, at);
        prefetch_ahead(mean, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float vi = b2 * v[i] + c2 * gi * gi;
            float mi = 0, var = vi, by, pi;

            if (centered) { /* rounding must not make the variance negative */
                mi = mean[i] + c2 * (gi - mean[i]);
                var = vi - mi * mi;
                var = var > 0 ? var : 0.0f;
                b.was[moves ? 3 : 2][i - at] = mean[i];
                mean[i] = mi;
            }
            by = gi / (sqrtf(var) + e);
            if (moves) {
                by = mu * buf[i] + by;
                b.was[2][i - at] = buf[i];
                buf[i] = by;
            }
            pi = p[i] - a * by;
            b.was[0][i - at] = p[i];
            b.was[1][i - at] = v[i];
            v[i] = vi;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, vi, mi) + finite_or_nan(by, 0, 0) != 0;
        }
        if (is_odd)
            stayed += restore_elements(
                &b, at, end - at,
                (float *const[TENSORS]){p, v, moves ? buf : mean,
                                        moves ? mean : NULL});
    }
    return stayed;
}

/* If `centered` without momentum, the state buf exists but is not used. */
static int64_t rmsprop(int64_t n, float *p, const float *g, float *v,
                       float *buf, float *mean, const struct pst_update *u)
{
    const bool moves = u->momentum != 0;

    if (u->centered)
        return moves ? rmsprop_loop(true, true, n, p, g, v, buf, mean, u)
                     : rmsprop_loop(false, true, n, p, g, v, NULL, mean, u);
    return moves ? rmsprop_loop(true, false, n, p, g, v, buf, NULL, u)
                 : rmsprop_loop(false, false, n, p, g, v, NULL, NULL, u);
}

static int64_t adagrad(int64_t n, float *restrict p, const float *restrict g,
                       float *restrict sum, const struct pst_update *u)
{
    const float step = (float)(u->lr / u->lr_divisor), e = (float)u->eps;
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(sum, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float si = sum[i] + gi * gi;
            const float pi = p[i] - step * (gi / (sqrtf(si) + e));

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = sum[i];
            sum[i] = si;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, si, 0) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, sum});
    }
    return stayed;
}

static int64_t adadelta(int64_t n, float *restrict p, const float *restrict g,
                        float *restrict v, float *restrict s,
                        const struct pst_update *u)
{
    const float b2 = (float)u->rho, c2 = (float)(1.0 - u->rho);
    const float a = (float)u->lr, e = (float)u->eps;
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(v, at);
        prefetch_ahead(s, at);
        for (int64_t i = at; i < end; i++) {
            const float gi = g[i] * gs + decay * p[i];
            const float vi = b2 * v[i] + c2 * gi * gi;
            const float di = sqrtf(s[i] + e) / sqrtf(vi + e) * gi;
            const float si = b2 * s[i] + c2 * di * di;
            const float pi = p[i] - a * di;

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = v[i];
            b.was[2][i - at] = s[i];
            v[i] = vi;
            s[i] = si;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, vi, si) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, v, s});
    }
    return stayed;
}

/* The loop of schedulefree. Callers pass u->first as a constant, so that both
 * loops have no branches. */
static PST_ALWAYS_INLINE int64_t
schedulefree_loop(bool first, int64_t n, float *restrict p,
                  const float *restrict g, float *restrict z, float *restrict v,
                  float *restrict x, const struct pst_update *u)
{
    const float b1 = (float)u->beta1, b2 = (float)u->beta2;
    const float c2 = (float)(1.0 - u->beta2), e = (float)u->eps;
    const float root = (float)(1.0 / sqrt(u->bias2));
    const float lr = (float)u->lr, share = (float)u->share;
    const float gs = (float)u->grad_scale, decay = (float)u->weight_decay;
    int64_t stayed = 0;

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        struct block b;
        int is_odd = 0;

        prefetch_ahead(p, at);
        prefetch_ahead(g, at);
        prefetch_ahead(z, at);
        prefetch_ahead(v, at);
        prefetch_ahead(x, at);
        for (int64_t i = at; i < end; i++) {
            const float zi = first ? p[i] : z[i], xi = first ? p[i] : x[i];
            const float gi = g[i] * gs;
            const float vi = b2 * v[i] + c2 * gi * gi;
            const float by = gi / (sqrtf(vi) * root + e) + decay * p[i];
            const float zn = zi - lr * by;
            const float xn = xi + share * (zn - xi);
            const float pi = zn + b1 * (xn - zn);

            b.was[0][i - at] = p[i];
            b.was[1][i - at] = zi;
            b.was[2][i - at] = v[i];
            b.was[3][i - at] = xi;
            z[i] = zn;
            v[i] = vi;
            x[i] = xn;
            p[i] = pi;
            is_odd |= finite_or_nan(pi, vi, xn) + finite_or_nan(zn, 0, 0) != 0;
        }
        if (is_odd)
            stayed += restore_elements(&b, at, end - at,
                                       (float *const[TENSORS]){p, z, v, x});
    }
    return stayed;
}

static int64_t schedulefree(int64_t n, float *p, const float *g, float *z,
                            float *v, float *x, const struct pst_update *u)
{
    return u->first ? schedulefree_loop(true, n, p, g, z, v, x, u)
                    : schedulefree_loop(false, n, p, g, z, v, x, u);
}

/* Sums in 16 lanes, then by a fixed tree: the bits do not depend on the vector
 * width. */
static double sumsq(int64_t n, const float *x)
{
    double lane[16] = {0};
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        if (i % BLOCK == 0)
            prefetch_ahead(x, i);
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
    .adam = adam,
    .adamax = adamax,
    .lion = lion,
    .rmsprop = rmsprop,
    .adagrad = adagrad,
    .adadelta = adadelta,
    .schedulefree = schedulefree,
};
