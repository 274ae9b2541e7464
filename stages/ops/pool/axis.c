// SPDX-License-Identifier: Apache-2.0
/* Computes, along one axis, the range of inputs of each result of pooling or
 * resizing, and their weights. */
#include "stages/ops/pool/resample.h"

#include <math.h>

int64_t pst_pool_size(int64_t n, int64_t k, int64_t stride, int64_t pad,
                      int64_t dil, bool ceil)
{
    /* In ceil mode a window may exceed the input and its padding. */
    const int64_t span =
        n + 2 * pad - dil * (k - 1) - 1 + (ceil ? stride - 1 : 0);
    int64_t out;

    if (span < 0)
        return 0;
    out = span / stride + 1;
    /* A window must start in the input or in the left padding. */
    if (ceil && (out - 1) * stride >= n + pad)
        out--;
    return out;
}

double pst_axis_scale(int64_t in, int64_t out, bool align, double given,
                      bool single)
{
    double scale;

    if (align)
        scale = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0.0;
    else if (given > 0.0)
        scale = 1.0 / given;
    else
        scale = out > 0 ? (double)in / (double)out : 0.0;
    if (!single)
        return scale;
    if (!align && given <= 0.0)
        return (double)((float)in / (float)out);
    return (double)(float)scale;
}

static void average(const struct pst_axis *a, int64_t o, struct pst_taps *t)
{
    const int64_t start = o * a->stride - a->pad;
    const int64_t end = PST_MIN(start + a->k, a->in + a->pad);
    const int64_t first = PST_MAX(start, 0), last = PST_MIN(end, a->in);

    t->first = first;
    t->count = PST_MAX(last - first, 0);
    t->even = 1.0 / a->divisor;
    if (!a->unweighted)
        t->even /= (double)(a->include_pad ? end - start : last - first);
}

static void adaptive(const struct pst_axis *a, int64_t o, struct pst_taps *t)
{
    const int64_t end = ((o + 1) * a->in + a->out - 1) / a->out;

    t->first = o * a->in / a->out;
    t->count = end - t->first;
    t->even = 1.0 / (double)t->count;
}

static void linear(const struct pst_axis *a, int64_t o, struct pst_taps *t)
{
    double at =
        a->align ? a->scale * (double)o : a->scale * ((double)o + 0.5) - 0.5;

    at = at > 0.0 ? at : 0.0;
    t->first = PST_MIN((int64_t)at, a->in - 1);
    t->count = 2;
    t->weight[1] = at - (double)t->first;
    t->weight[1] = t->weight[1] < 1.0 ? t->weight[1] : 1.0;
    t->weight[0] = 1.0 - t->weight[1];
}

/* Keys' cubic kernel for |x| <= 1 and, below, for 1 < |x| < 2. */
static double cubic_near(double x, double a)
{
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
}

static double cubic_far(double x, double a)
{
    return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
}

static void cubic(const struct pst_axis *a, int64_t o, struct pst_taps *t)
{
    const double c = -0.75;
    const double at =
        a->align ? a->scale * (double)o : a->scale * ((double)o + 0.5) - 0.5;
    const double from = floor(at), d = at - from;

    t->first = (int64_t)from - 1;
    t->count = 4;
    t->weight[0] = cubic_far(d + 1.0, c);
    t->weight[1] = cubic_near(d, c);
    t->weight[2] = cubic_near(1.0 - d, c);
    t->weight[3] = cubic_far(2.0 - d, c);
}

/* Returns the value of the antialiasing filter at distance x. */
static double filter(const struct pst_taps *t, double x)
{
    x = fabs(x);
    if (!t->cubic)
        return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0)
        return cubic_near(x, -0.5);
    return x < 2.0 ? cubic_far(x, -0.5) : 0.0;
}

static void antialiased(const struct pst_axis *a, int64_t o, struct pst_taps *t)
{
    const bool shrinks = a->scale >= 1.0;
    const double half = a->kind == PST_AXIS_CUBIC_AA ? 2.0 : 1.0;
    const double support = shrinks ? half * a->scale : half;
    double sum = 0.0;
    int64_t end;

    t->cubic = a->kind == PST_AXIS_CUBIC_AA;
    t->center = a->scale * ((double)o + 0.5);
    t->invscale = shrinks ? 1.0 / a->scale : 1.0;
    t->first = PST_MAX((int64_t)(t->center - support + 0.5), 0);
    end = PST_MIN((int64_t)(t->center + support + 0.5), a->in);
    t->count = PST_MAX(end - t->first, 0);
    t->norm = 1.0;
    for (int64_t i = 0; i < t->count; i++)
        sum += pst_taps_weight(t, i);
    if (sum != 0.0)
        t->norm = 1.0 / sum;
}

void pst_axis_taps(const struct pst_axis *a, int64_t o, struct pst_taps *ret)
{
    const float scale = (float)a->scale;

    *ret = (struct pst_taps){.first = o, .count = 1};
    switch (a->kind) {
    case PST_AXIS_COPY:
        ret->even = 1.0 / (a->divisor > 0.0 ? a->divisor : 1.0);
        break;
    case PST_AXIS_AVERAGE:
        average(a, o, ret);
        break;
    case PST_AXIS_ADAPTIVE:
        adaptive(a, o, ret);
        break;
    case PST_AXIS_NEAREST: /* index in f32 for every dtype, as in PyTorch */
        ret->first = PST_MIN((int64_t)floorf((float)o * scale), a->in - 1);
        ret->even = 1.0;
        break;
    case PST_AXIS_EXACT:
        ret->first =
            PST_MIN((int64_t)floorf(((float)o + 0.5f) * scale), a->in - 1);
        ret->even = 1.0;
        break;
    case PST_AXIS_LINEAR:
        linear(a, o, ret);
        break;
    case PST_AXIS_CUBIC:
        cubic(a, o, ret);
        break;
    case PST_AXIS_LINEAR_AA:
    case PST_AXIS_CUBIC_AA:
        antialiased(a, o, ret);
        break;
    }
}

double pst_taps_weight(const struct pst_taps *t, int64_t i)
{
    if (t->even != 0.0)
        return t->even;
    if (t->norm != 0.0)
        return t->norm * filter(t, ((double)(i + t->first) - t->center + 0.5) *
                                       t->invscale);
    return t->weight[i];
}
