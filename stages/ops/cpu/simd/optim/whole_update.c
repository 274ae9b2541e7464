// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/optim/optim.h"

#include <math.h>

#define LANES 16

/* Adds up lanes by a fixed tree, so that the bits do not depend on the vector
 * width. */
static PST_ALWAYS_INLINE double add_lanes(double lane[LANES])
{
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static PST_ALWAYS_INLINE bool is_finite(float x)
{
    return 0.0f * x == 0;
}

/* Returns the largest absolute value of an element of the gradient. */
static PST_ALWAYS_INLINE float gradient_limit(const struct pst_update *u)
{
    return u->clip_value > 0 ? (float)u->clip_value : INFINITY;
}

/* NaN stays NaN. */
static PST_ALWAYS_INLINE float clamp_abs(float x, float most)
{
    return x > most ? most : x < -most ? -most : x;
}

/* --- lamb ----------------------------------------------------------------- */

struct lamb {
    float b1, b2, c2, by1, root, e, gs, most, decay;
};

struct lamb_element {
    float m, v, u;
};

static PST_ALWAYS_INLINE struct lamb lamb_of(const struct pst_update *u)
{
    return (struct lamb){.b1 = (float)(1.0 - u->beta1),
                         .b2 = (float)u->beta2,
                         .c2 = (float)(1.0 - u->beta2),
                         .by1 = (float)(1.0 / u->bias1),
                         .root = (float)(1.0 / sqrt(u->bias2)),
                         .e = (float)u->eps,
                         .gs = (float)u->grad_scale,
                         .most = gradient_limit(u),
                         .decay = (float)u->weight_decay};
}

static PST_ALWAYS_INLINE struct lamb_element lamb_next(const struct lamb *l,
                                                       float p, float g,
                                                       float m, float v)
{
    const float gi = clamp_abs(g * l->gs, l->most);
    const float mi = m + l->b1 * (gi - m);
    const float vi = l->b2 * v + l->c2 * gi * gi;
    const float ui = mi * l->by1 / (sqrtf(vi) * l->root + l->e) + l->decay * p;

    return (struct lamb_element){mi, vi, ui};
}

static void lamb_sums(int64_t n, const float *p, const float *g, const float *m,
                      const float *v, const struct pst_update *u, double ret[2])
{
    const struct lamb l = lamb_of(u);
    double of_p[LANES] = {0}, of_u[LANES] = {0};

    for (int64_t at = 0; at < n; at += LANES) {
        const int64_t end = n - at < LANES ? n - at : LANES;

        for (int64_t j = 0; j < end; j++) {
            const int64_t i = at + j;
            const struct lamb_element x = lamb_next(&l, p[i], g[i], m[i], v[i]);
            const bool counts = is_finite(x.u) && is_finite(x.v);
            const double pi = counts ? (double)p[i] : 0;
            const double ui = counts ? (double)x.u : 0;

            of_p[j] += pi * pi;
            of_u[j] += ui * ui;
        }
    }
    ret[0] = add_lanes(of_p);
    ret[1] = add_lanes(of_u);
}

static int64_t lamb(int64_t n, float *restrict p, const float *restrict g,
                    float *restrict m, float *restrict v, double step,
                    const struct pst_update *u)
{
    const struct lamb l = lamb_of(u);
    const float a = (float)step;
    int64_t stayed = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct lamb_element x = lamb_next(&l, p[i], g[i], m[i], v[i]);
        const float pi = p[i] - a * x.u;
        const bool was = is_finite(p[i]) && is_finite(m[i]) && is_finite(v[i]);
        const bool stays =
            was && !(is_finite(pi) && is_finite(x.m) && is_finite(x.v));

        p[i] = stays ? p[i] : pi;
        m[i] = stays ? m[i] : x.m;
        v[i] = stays ? v[i] : x.v;
        stayed += stays;
    }
    return stayed;
}

/* --- muon ----------------------------------------------------------------- */

struct muon {
    float by, gs, most, mu;
    bool nesterov, is_small; /* is_small: momentum < 0.5, for lerp() */
};

static PST_ALWAYS_INLINE struct muon muon_of(const struct pst_update *u)
{
    return (struct muon){.by = (float)(1.0 - u->momentum),
                         .gs = (float)u->grad_scale,
                         .most = gradient_limit(u),
                         .mu = (float)u->momentum,
                         .nesterov = u->nesterov,
                         .is_small = u->momentum < 0.5};
}

/* Returns a + w * (b - a), computed from a or from b, whichever is nearer, as
 * torch does. rest: 1 - w; is_small: w < 0.5. */
static PST_ALWAYS_INLINE float lerp(float a, float b, float w, float rest,
                                    bool is_small)
{
    return is_small ? a + w * (b - a) : b - (b - a) * rest;
}

static PST_ALWAYS_INLINE float muon_next(const struct muon *x, float g,
                                         float *b)
{
    const float gi = clamp_abs(g * x->gs, x->most);

    *b = lerp(*b, gi, x->by, x->mu, !x->is_small);
    return x->nesterov ? lerp(gi, *b, x->mu, x->by, x->is_small) : *b;
}

static double muon_sum(int64_t n, const float *g, const float *b,
                       const struct pst_update *u)
{
    const struct muon x = muon_of(u);
    double lane[LANES] = {0};

    for (int64_t at = 0; at < n; at += LANES) {
        const int64_t end = n - at < LANES ? n - at : LANES;

        for (int64_t j = 0; j < end; j++) {
            float bi = b[at + j];
            const double ui = (double)muon_next(&x, g[at + j], &bi);

            lane[j] += ui * ui;
        }
    }
    return add_lanes(lane);
}

static void muon_begin(int64_t n, const float *restrict g, float *restrict b,
                       float *restrict to, double scale,
                       const struct pst_update *u)
{
    const struct muon x = muon_of(u);
    const float a = (float)scale;

    for (int64_t i = 0; i < n; i++)
        to[i] = muon_next(&x, g[i], &b[i]) * a;
}

static int64_t muon_end(int64_t n, float *restrict p, const float *restrict x,
                        double step, const struct pst_update *u)
{
    const float keep = (float)(1.0 - u->lr * u->weight_decay);
    const float a = (float)step;
    int64_t stayed = 0;

    for (int64_t i = 0; i < n; i++) {
        const float pi = p[i] * keep - a * x[i];
        const bool stays = is_finite(p[i]) && !is_finite(pi);

        p[i] = stays ? p[i] : pi;
        stayed += stays;
    }
    return stayed;
}

/* --- adafactor ------------------------------------------------------------ */

static double adafactor_square(int64_t n, const float *restrict g,
                               double *restrict cols,
                               const struct pst_update *u)
{
    const float gs = (float)u->grad_scale, most = gradient_limit(u);
    double lane[LANES] = {0};

    for (int64_t at = 0; at < n; at += LANES) {
        const int64_t end = n - at < LANES ? n - at : LANES;

        for (int64_t j = 0; j < end; j++) {
            const double gi = (double)clamp_abs(g[at + j] * gs, most);

            lane[j] += gi * gi;
            cols[at + j] += gi * gi;
        }
    }
    return add_lanes(lane);
}

struct adafactor {
    float w, rest, gs, most, least, row, by_mean;
    bool is_small;
    const float *col;
};

static PST_ALWAYS_INLINE struct adafactor adafactor_of(
    const struct pst_factored *at, const struct pst_update *u)
{
    return (struct adafactor){.w = (float)u->share,
                              .rest = (float)(1.0 - u->share),
                              .gs = (float)u->grad_scale,
                              .most = gradient_limit(u),
                              .least = (float)(u->eps * u->eps),
                              .row = at->row,
                              .by_mean = 1.0f / at->mean,
                              .is_small = u->share < 0.5,
                              .col = at->col};
}

/* Returns u of element i. Sets *v to its mean square: from row and col, or, if
 * col is NULL, the old *v averaged with the new square. */
static PST_ALWAYS_INLINE float adafactor_next(const struct adafactor *x,
                                              int64_t i, float g, float *v)
{
    const float gi = clamp_abs(g * x->gs, x->most);

    *v = x->col != NULL ? x->row * x->col[i] * x->by_mean
                        : lerp(*v, gi * gi, x->w, x->rest, x->is_small);
    return gi / sqrtf(*v > x->least ? *v : x->least);
}

static double adafactor_sum(int64_t n, const float *g,
                            const struct pst_factored *at,
                            const struct pst_update *u)
{
    const struct adafactor x = adafactor_of(at, u);
    double lane[LANES] = {0};

    for (int64_t i = 0; i < n; i++) {
        float v = x.col != NULL ? 0 : at->v[i];
        const double ui = (double)adafactor_next(&x, i, g[i], &v);

        lane[i % LANES] += ui * ui + (double)(0.0f * v);
    }
    return add_lanes(lane);
}

static int64_t adafactor_step(int64_t n, float *restrict p,
                              const float *restrict g,
                              const struct pst_factored *at, double step,
                              const struct pst_update *u)
{
    const struct adafactor x = adafactor_of(at, u);
    const float keep = (float)(1.0 - u->lr * u->weight_decay);
    const float a = (float)step;
    int64_t stayed = 0;

    for (int64_t i = 0; i < n; i++) {
        float v = x.col != NULL ? 0 : at->v[i];
        const float ui = adafactor_next(&x, i, g[i], &v);
        const float pi = p[i] * keep - a * ui;
        const bool stays = is_finite(p[i]) && !is_finite(pi);

        if (x.col == NULL)
            at->v[i] = v;
        p[i] = stays ? p[i] : pi;
        stayed += stays;
    }
    return stayed;
}

const struct pst_simd_whole_updates PST_SIMD(pst_simd_whole_updates) = {
    .lamb_sums = lamb_sums,
    .lamb = lamb,
    .muon_sum = muon_sum,
    .muon_begin = muon_begin,
    .muon_end = muon_end,
    .adafactor_square = adafactor_square,
    .adafactor_sum = adafactor_sum,
    .adafactor_step = adafactor_step,
};
